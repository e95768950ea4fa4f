# The formats, GPUs, SPEC, memory model, selector and host codecs: plain C++
# that libkvforge carries without LLVM.
include_guard(GLOBAL)
add_library(kvforge_spec STATIC
  ${CMAKE_CURRENT_LIST_DIR}/formats/codec.cc
  ${CMAKE_CURRENT_LIST_DIR}/formats/e4m3_row.cc
  ${CMAKE_CURRENT_LIST_DIR}/formats/format.cc
  ${CMAKE_CURRENT_LIST_DIR}/formats/fp8_given.cc
  ${CMAKE_CURRENT_LIST_DIR}/formats/int4_row.cc
  ${CMAKE_CURRENT_LIST_DIR}/formats/int8_row.cc
  ${CMAKE_CURRENT_LIST_DIR}/formats/mx.cc
  ${CMAKE_CURRENT_LIST_DIR}/formats/nvfp4.cc
  ${CMAKE_CURRENT_LIST_DIR}/formats/plain.cc
  ${CMAKE_CURRENT_LIST_DIR}/formats/row_codec.cc
  ${CMAKE_CURRENT_LIST_DIR}/formats/row_rules.cc
  ${CMAKE_CURRENT_LIST_DIR}/spec/kernel_spec.cc
  ${CMAKE_CURRENT_LIST_DIR}/spec/spec_parser.cc
  ${CMAKE_CURRENT_LIST_DIR}/target/target.cc
  ${CMAKE_CURRENT_LIST_DIR}/tile/candidate_tiles.cc
  ${CMAKE_CURRENT_LIST_DIR}/tile/memory_model.cc
  ${CMAKE_CURRENT_LIST_DIR}/tile/tile.cc
  ${CMAKE_CURRENT_LIST_DIR}/tile/tile_selector.cc)
target_link_libraries(kvforge_spec
  PUBLIC absl::status absl::statusor absl::strings absl::span
  PRIVATE kvforge_options kvforge_base absl::algorithm_container)
