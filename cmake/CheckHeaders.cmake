# SPDX-License-Identifier: BSD-3-Clause
# Compiles every public header as the first include of a file of its own, and all of them in one file, which clang-tidy
# reads to reach the headers.
file(GLOB_RECURSE headers RELATIVE "${PROJECT_SOURCE_DIR}/include" CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/*.hpp")
set(folder "${PROJECT_BINARY_DIR}/headers")
set(sources "${folder}/all_headers.cpp")
set(all "")
foreach(header IN LISTS headers)
  string(REGEX REPLACE "[/.]" "_" name "${header}")
  # Twice: a header without an include guard fails here and not at its first user.
  file(CONFIGURE OUTPUT "${folder}/${name}.cpp" CONTENT "#include <${header}>\n#include <${header}>\n")
  list(APPEND sources "${folder}/${name}.cpp")
  string(APPEND all "#include <${header}>\n")
endforeach()
file(CONFIGURE OUTPUT "${folder}/all_headers.cpp" CONTENT "${all}")

add_library(shmcb_headers OBJECT ${sources})
shmcb_target(shmcb_headers)
target_link_libraries(shmcb_headers PRIVATE shmcb::shmcb)
