# The scalar oracles, for the command and for tests.
include_guard(GLOBAL)
add_library(kvforge_reference STATIC
  ${CMAKE_CURRENT_LIST_DIR}/reference.cc)
target_link_libraries(kvforge_reference
  PUBLIC absl::status absl::statusor absl::strings absl::span
  PRIVATE kvforge_options)
