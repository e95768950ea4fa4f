# kvforge_test(<name> SRCS <files> DEPS <targets> [LABELS <labels>])
# A GoogleTest binary, one ctest test a binary: the sources' own cases run in
# one process. A test that needs a GPU carries the label gpu and skips by name.
include(GoogleTest)
function(kvforge_test name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  target_link_libraries(${name} PRIVATE kvforge_options ${ARG_DEPS}
    GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE
    KVFORGE_TEST_DATA="${PROJECT_SOURCE_DIR}/tests")
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT 900)
endfunction()

# KVFORGE_NUMPY_PYTHON: an interpreter that has NumPy, else any; Debian's package
# serves Debian's interpreter, which need not be the first one.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
if(NOT KVFORGE_NUMPY_PYTHON)
  set(kvforge_numpy_python ${Python3_EXECUTABLE})
  foreach(python ${Python3_EXECUTABLE} /usr/bin/python3)
    execute_process(COMMAND ${python} -c "import numpy"
      RESULT_VARIABLE kvforge_no_numpy OUTPUT_QUIET ERROR_QUIET)
    if(kvforge_no_numpy EQUAL 0)
      set(kvforge_numpy_python ${python})
      break()
    endif()
  endforeach()
  set(KVFORGE_NUMPY_PYTHON ${kvforge_numpy_python})
endif()
