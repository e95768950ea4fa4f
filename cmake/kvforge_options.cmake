# Flags that every target of ours takes: link kvforge_options PRIVATE.
add_library(kvforge_options INTERFACE)
target_include_directories(kvforge_options INTERFACE
  ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/templates ${PROJECT_BINARY_DIR})
target_compile_options(kvforge_options INTERFACE -Wall -Wextra -Werror
  -Wno-missing-field-initializers -Wno-unused-parameter
  $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations>  # of libstdc++ itself
  $<$<CONFIG:Release>:-O2>)
if(KVFORGE_SANITIZE)
  target_compile_options(kvforge_options INTERFACE
    -fsanitize=${KVFORGE_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=undefined)
  target_link_options(kvforge_options INTERFACE -fsanitize=${KVFORGE_SANITIZE})
endif()

find_program(KVFORGE_CCACHE ccache)
if(KVFORGE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${KVFORGE_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${KVFORGE_CCACHE})
endif()
find_program(KVFORGE_MOLD mold)
if(KVFORGE_MOLD)
  # g++ 12 finds mold as `ld` in this folder.
  add_link_options(-B/usr/libexec/mold)
endif()
