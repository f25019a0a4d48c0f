# SPDX-License-Identifier: Apache-2.0
# Run by `cmake --install`: copies the headers of the training core from `source` (bindings/trainer) to `destination`.
# What they include of each other is "bindings/trainer/..." in the tree, and "ronde/trainer/..." for those who have a
# prefix alone.
file(GLOB_RECURSE headers RELATIVE ${source} ${source}/*/*.h)
list(REMOVE_ITEM headers tensor/primitives.h)  # for the core's own sources: it includes oneDNN's
list(TRANSFORM headers PREPEND ronde/trainer/ OUTPUT_VARIABLE places)
list(APPEND headers include/ronde/trainer.hpp include/ronde/parameter_server.hpp)
list(APPEND places ronde/trainer.hpp ronde/parameter_server.hpp)
foreach(header base/flags/flags.h base/words/number_text.h)  # what they include of the layers
  list(APPEND headers ../../${header})
  list(APPEND places ronde/trainer/${header})
endforeach()
foreach(header place IN ZIP_LISTS headers places)
  file(READ ${source}/${header} text)
  string(REPLACE "#include \"bindings/trainer/" "#include \"ronde/trainer/" text "${text}")
  string(REPLACE "#include \"base/" "#include \"ronde/trainer/base/" text "${text}")
  file(WRITE ${destination}/${place} "${text}")
  list(APPEND CMAKE_INSTALL_MANIFEST_FILES ${destination}/${place})
endforeach()
