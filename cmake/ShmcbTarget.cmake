# SPDX-License-Identifier: BSD-3-Clause
# shmcb_target(<target>): the language level, warnings and sanitizers of a compiled target of this project. All of it is
# private to the target: nothing reaches those who link shmcb.
#
# Not for g++: -Wnull-dereference. From -O2 on it also reports paths that only the optimizer invented, in inlined code of
# the standard library.
function(shmcb_target target)
  target_compile_features(${target} PRIVATE cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  target_compile_options(
    ${target}
    PRIVATE -Wall
            -Wextra
            -Wpedantic
            -Wconversion
            -Wsign-conversion
            -Wshadow
            -Wold-style-cast
            -Wnon-virtual-dtor
            -Woverloaded-virtual
            -Wcast-align
            -Wformat=2
            -Wimplicit-fallthrough
            -Wextra-semi)
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # C++20 allows the empty variadic argument that GoogleTest's macros rely on; clang 14 still calls it an extension.
    target_compile_options(${target} PRIVATE -Wnull-dereference -Wno-gnu-zero-variadic-macro-arguments)
  elseif(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 12
         AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # GCC bug 105651: g++ 12 reports "literal" + std::string.
    target_compile_options(${target} PRIVATE -Wno-restrict)
  endif()
  if(SHMCB_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(SHMCB_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${SHMCB_SANITIZE} -fno-sanitize-recover=all
                                             -fno-omit-frame-pointer)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      # GCC's manual: sanitizers make this one say what is not so (seen with std::optional and -fsanitize=undefined).
      target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized)
    endif()
    target_link_options(${target} PRIVATE -fsanitize=${SHMCB_SANITIZE})
  endif()
endfunction()

# shmcb_find(<variable> <option> <package> <target> <Debian package>): looks for a dependency of the optional part that
# <option> (AUTO or ON) asks for and sets <variable> to whether it is there. Missing, it is an error if ON, and said aloud
# if AUTO.
function(shmcb_find variable option package target debian)
  find_package(${package} CONFIG QUIET GLOBAL)
  set(found OFF)
  if(TARGET ${target})
    set(found ON)
  elseif(${option} STREQUAL "AUTO")
    message(STATUS "shmcb: ${option}=AUTO leaves something out: no ${package} (Debian: ${debian})")
  else()
    message(FATAL_ERROR "${option}=${${option}} needs ${package} (Debian: ${debian})")
  endif()
  set(${variable} ${found} PARENT_SCOPE)
endfunction()
