# Runs KVFORGE with ARGS and compares its exit code with CODE and its last line
# with LAST (a regular expression); OUTPUT, if given, must match somewhere.
separate_arguments(arguments UNIX_COMMAND "${ARGS}")
execute_process(COMMAND ${KVFORGE} ${arguments}
  OUTPUT_VARIABLE out ERROR_VARIABLE err RESULT_VARIABLE code)
message(STATUS "exit ${code}\n${out}${err}")
if(NOT code EQUAL CODE)
  message(FATAL_ERROR "exit code ${code}, expected ${CODE}")
endif()
string(STRIP "${out}" stripped)
string(REGEX REPLACE ".*\n" "" last "${stripped}")
if(DEFINED LAST AND NOT last MATCHES "${LAST}")
  message(FATAL_ERROR "last line '${last}' does not match '${LAST}'")
endif()
if(DEFINED OUTPUT AND NOT "${out}${err}" MATCHES "${OUTPUT}")
  message(FATAL_ERROR "the output does not match '${OUTPUT}'")
endif()
