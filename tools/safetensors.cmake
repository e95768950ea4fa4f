# Reader of safetensors files: recorded cases of `kvforge check` and of tests.
include_guard(GLOBAL)
add_library(kvforge_safetensors STATIC
  ${CMAKE_CURRENT_LIST_DIR}/safetensors.cc)
target_link_libraries(kvforge_safetensors
  PUBLIC absl::status absl::statusor absl::strings absl::span
  PRIVATE kvforge_options kvforge_base nlohmann_json::nlohmann_json)
