# Compiler settings that every target shares.

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1 -DFIRN_DEBUG=1")

add_library(firn_options INTERFACE)
# Codes must not depend on whether a compiler fuses a multiply with an add. nvcc knows none of these.
target_compile_options(firn_options INTERFACE
  "$<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;-Wshadow;-Wnon-virtual-dtor;-Woverloaded-virtual;-Werror>"
  "$<$<COMPILE_LANGUAGE:C,CXX>:-fno-strict-aliasing;-ffp-contract=off>")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports both falsely inside std::string and std::vector.
  target_compile_options(firn_options INTERFACE "$<$<COMPILE_LANGUAGE:C,CXX>:-Wno-restrict;-Wno-stringop-overread>")
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # Tables that are checked while they are compiled take more steps than Clang allows by itself.
  target_compile_options(firn_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-fconstexpr-steps=100000000>")
endif()
target_include_directories(firn_options INTERFACE ${PROJECT_SOURCE_DIR})

if(FIRN_SANITIZE)
  # Every SIMD target is tested in the other builds; instrumenting all of them takes minutes a file.
  add_compile_definitions("HWY_DISABLED_TARGETS=(HWY_AVX3|HWY_AVX3_DL|HWY_SSE4|HWY_SSSE3)")
  add_compile_options(-fsanitize=${FIRN_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${FIRN_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC 12 reports it falsely inside Abseil's inlined vectors once they are instrumented.
    add_compile_options(-Wno-maybe-uninitialized)
  endif()
endif()

find_program(FIRN_CCACHE ccache)
if(FIRN_CCACHE)
  # Paths are made relative and the build folder is left out of the hash, so that builds of one tree share objects.
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} ${FIRN_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
endif()

# CUDA sources are built where a compiler for them is found; everything else builds the same without.
include(CheckLanguage)
check_language(CUDA)
if(CMAKE_CUDA_COMPILER)
  option(FIRN_CUDA "Build CUDA sources" ON)
else()
  option(FIRN_CUDA "Build CUDA sources" OFF)
endif()
