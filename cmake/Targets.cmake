# firn_library(NAME SRCS ... DEPS ...): one static library of one folder, sources listed by name.
function(firn_library name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SRCS})
  target_link_libraries(${name} PUBLIC firn_options ${ARG_DEPS})
endfunction()

# firn_test(NAME SRCS ... DEPS ... [LABELS ...] [TIMEOUT seconds] [ONE_THREAD]): one gtest program, one ctest entry.
# ONE_THREAD: its code starts no threads and shares nothing, so ThreadSanitizer has nothing to judge and the test isn't built for it.
# Tests get FIRN_SHARED, the folder of real data, where the environment does not set it.
function(firn_test name)
  if(NOT FIRN_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "ONE_THREAD" "TIMEOUT" "SRCS;DEPS;LABELS" ${ARGN})
  if(ARG_ONE_THREAD AND FIRN_SANITIZE STREQUAL "thread")
    return()
  endif()
  add_executable(${name} ${ARG_SRCS})
  target_link_libraries(${name} PRIVATE firn_options ${ARG_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE
    FIRN_SOURCE_DIR="${PROJECT_SOURCE_DIR}" FIRN_BINARY_DIR="${PROJECT_BINARY_DIR}")
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 900)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()

function(firn_optional_subdirectory folder)
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/CMakeLists.txt)
    add_subdirectory(${folder})
  endif()
endfunction()
