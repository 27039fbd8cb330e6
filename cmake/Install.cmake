# SPDX-License-Identifier: BSD-3-Clause
# What `cmake --install` lays down: headers, the library, the tools, and the files by which CMake and pkg-config find them.
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/shmcb")

install(TARGETS shmcb_core ${shmcb_libraries} EXPORT shmcbTargets)
set(shmcb_left_out "")
if(NOT TARGET shmcb_config)
  set(shmcb_left_out PATTERN config_text.hpp EXCLUDE)
endif()
install(
  DIRECTORY "${PROJECT_SOURCE_DIR}/include/shmcb"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  FILES_MATCHING
  PATTERN "*.hpp"
  PATTERN "*.h"
  ${shmcb_left_out})
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")

install(EXPORT shmcbTargets NAMESPACE shmcb:: DESTINATION "${package_dir}")
configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/shmcbConfig.cmake.in" "${PROJECT_BINARY_DIR}/shmcbConfig.cmake"
  INSTALL_DESTINATION "${package_dir}")
# Before 1.0 every minor version may break its users.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/shmcbConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/shmcbConfig.cmake" "${PROJECT_BINARY_DIR}/shmcbConfigVersion.cmake"
        DESTINATION "${package_dir}")

# The prefix is found from where the file lies, so that `cmake --install --prefix` and a moved tree stay right.
file(RELATIVE_PATH shmcb_pc_prefix "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")
string(REGEX REPLACE "/$" "" shmcb_pc_prefix "${shmcb_pc_prefix}")
foreach(dir LIBDIR INCLUDEDIR)
  if(IS_ABSOLUTE "${CMAKE_INSTALL_${dir}}")
    set(shmcb_pc_${dir} "${CMAKE_INSTALL_${dir}}")
  else()
    set(shmcb_pc_${dir} "\${prefix}/${CMAKE_INSTALL_${dir}}")
  endif()
endforeach()
set(shmcb_pc_cflags "")
if(NOT BUILD_SHARED_LIBS)
  set(shmcb_pc_cflags " -DSHMCB_STATIC")
endif()
set(shmcb_pc_files shmcb.pc)
if(TARGET shmcb_config)
  list(APPEND shmcb_pc_files shmcb-config.pc)
endif()
foreach(file IN LISTS shmcb_pc_files)
  configure_file("${PROJECT_SOURCE_DIR}/cmake/${file}.in" "${PROJECT_BINARY_DIR}/${file}" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/${file}" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endforeach()
