# SPDX-License-Identifier: Apache-2.0
# Man pages (where help2man is) and bash's completion of the programs, from what they print for --help and --version.
if(CMAKE_CROSSCOMPILING OR RONDE_SANITIZE)
  return()
endif()
find_program(RONDE_HELP2MAN help2man)
find_program(RONDE_GZIP gzip)
mark_as_advanced(RONDE_HELP2MAN RONDE_GZIP)
if(NOT RONDE_HELP2MAN OR NOT RONDE_GZIP)
  message(STATUS "man pages are not made: they need help2man and gzip")
endif()

# ronde_document(<target> <name> <summary>): of one program, which is installed with the tools.
function(ronde_document target name summary)
  if(NOT TARGET ${target})
    return()
  endif()
  set(folder ${PROJECT_BINARY_DIR}/manuals)
  set(completion ${folder}/${name}.bash)
  set(page ${folder}/${name}.1)
  set(script ${PROJECT_SOURCE_DIR}/cmake/Completion.cmake)
  add_custom_command(OUTPUT ${completion} DEPENDS ${target} ${script} ${script}.in VERBATIM
    COMMAND ${CMAKE_COMMAND} -D program=$<TARGET_FILE:${target}> -D output=${completion} -P ${script})
  set(files ${completion})
  install(FILES ${completion} DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/bash-completion/completions RENAME ${name}
          COMPONENT tools)
  if(RONDE_HELP2MAN AND RONDE_GZIP)
    add_custom_command(OUTPUT ${page}.gz DEPENDS ${target} VERBATIM
      COMMAND ${RONDE_HELP2MAN} --no-info --name=${summary} --output=${page} $<TARGET_FILE:${target}>
      COMMAND ${RONDE_GZIP} -9nf ${page})
    list(APPEND files ${page}.gz)
    install(FILES ${page}.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools)
  endif()
  add_custom_target(ronde_manual_of_${target} ALL DEPENDS ${files})
endfunction()

file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/manuals)
ronde_document(ronderun ronderun "start the ranks of a program")
ronde_document(ronde-perf ronde-perf "measure allreduce and its like on a machine or a cluster")
ronde_document(ronde_checkpoint ronde-checkpoint "look at the checkpoints of a training")
