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
