# SPDX-License-Identifier: BSD-3-Clause
# Cross-compiling for ARM64 with Debian's g++-aarch64-linux-gnu, tests run by qemu-user: for tools/arm64. The header-only
# dependencies are the host's; its compiled ones are not for this machine, so GoogleTest is built from Debian's sources.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc) # GoogleTest's project names C
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)
set(SHMCB_GOOGLETEST_SOURCE /usr/src/googletest CACHE PATH "GoogleTest's sources, where its installed libraries do not fit")
# The host's folders of CMake packages are not searched for another machine; of these only headers are used.
file(GLOB shmcb_header_only_packages /usr/lib/*/cmake/Boost-* /usr/lib/*/cmake/boost_headers-* /usr/lib/*/cmake/fmt
     /usr/lib/*/cmake/tomlplusplus)
foreach(folder IN LISTS shmcb_header_only_packages)
  cmake_path(GET folder FILENAME package)
  string(REGEX REPLACE "-[0-9.]+$" "" package "${package}")
  set(${package}_DIR "${folder}" CACHE PATH "Folder of the CMake package")
endforeach()
