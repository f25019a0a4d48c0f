# SPDX-License-Identifier: Apache-2.0
# oneDNN's library as the target ronde::dnnl, where it is found; Debian's oneDNN brings no CMake package. Installed, too.
find_library(RONDE_DNNL_LIBRARY dnnl)
mark_as_advanced(RONDE_DNNL_LIBRARY)
if(RONDE_DNNL_LIBRARY AND NOT TARGET ronde::dnnl)
  add_library(ronde::dnnl UNKNOWN IMPORTED)
  set_target_properties(ronde::dnnl PROPERTIES IMPORTED_LOCATION ${RONDE_DNNL_LIBRARY})
endif()
