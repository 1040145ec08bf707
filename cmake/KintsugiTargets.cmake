# How every target of the project is compiled, and the helpers the folders use to declare theirs.
include_guard()

add_library(kintsugi_options INTERFACE)
target_include_directories(kintsugi_options INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/generated)
target_compile_options(kintsugi_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wno-missing-field-initializers
  # Bits are a promise: no contraction, no reassociation, whatever the optimisation level.
  -ffp-contract=off -fno-fast-math
  -fno-omit-frame-pointer)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 sees uninitialised strings in every copy of a std::variant that may hold one.
  target_compile_options(kintsugi_options INTERFACE -Wno-maybe-uninitialized)
endif()
if(KINTSUGI_WERROR)
  target_compile_options(kintsugi_options INTERFACE -Werror)
endif()

set(KINTSUGI_SANITIZE "" CACHE STRING "Sanitizers, comma separated (address,undefined or thread)")
if(KINTSUGI_SANITIZE)
  add_compile_options(-fsanitize=${KINTSUGI_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${KINTSUGI_SANITIZE})
endif()
option(KINTSUGI_COVERAGE "Instrument for gcov" OFF)
if(KINTSUGI_COVERAGE)
  add_compile_options(--coverage)
  add_link_options(--coverage)
endif()

# kintsugi_library(NAME SOURCES a.cpp ... DEPENDS lib ...): a static library of one folder.
function(kintsugi_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC kintsugi_options ${ARG_DEPENDS})
endfunction()

# kintsugi_test(NAME LABELS unit SOURCES a_test.cpp ... DEPENDS lib ...): one GoogleTest program.
# Each TEST is a ctest test of its own, so a failure is named.
function(kintsugi_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPENDS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE kintsugi_options ${ARG_DEPENDS} GTest::gmock GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
endfunction()
