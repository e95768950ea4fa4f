# Packages, all from Debian. Nothing of CUDA is linked or included.
find_package(Threads REQUIRED)
find_package(GTest REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(SQLite3 REQUIRED)  # tuning tables: the command only

# Abseil from its static archives, so that what we build runs on machines that
# have none.
find_package(absl REQUIRED)
get_directory_property(kvforge_imported IMPORTED_TARGETS)
foreach(target ${kvforge_imported})
  if(target MATCHES "^absl::")
    get_target_property(type ${target} TYPE)
    if(type STREQUAL "SHARED_LIBRARY")
      get_target_property(location ${target} IMPORTED_LOCATION_NONE)
      string(REGEX REPLACE "\\.so.*$" ".a" archive "${location}")
      if(NOT EXISTS "${archive}")
        message(FATAL_ERROR "no static archive for ${target}: ${archive}")
      endif()
      set_target_properties(${target} PROPERTIES
        IMPORTED_LOCATION_NONE "${archive}" IMPORTED_SONAME_NONE "")
    endif()
  endif()
endforeach()

# Debian's version file wants major.minor. Only compiler/ and runtime/host see
# these; MLIR_DIR may point to another installation.
if(NOT MLIR_DIR)
  find_program(KVFORGE_LLVM_CONFIG NAMES llvm-config-22 REQUIRED)
  execute_process(COMMAND ${KVFORGE_LLVM_CONFIG} --prefix
    OUTPUT_VARIABLE kvforge_llvm_prefix OUTPUT_STRIP_TRAILING_WHITESPACE)
  list(APPEND CMAKE_PREFIX_PATH ${kvforge_llvm_prefix})
endif()
find_package(MLIR 22.1 REQUIRED CONFIG)
list(APPEND CMAKE_MODULE_PATH ${MLIR_CMAKE_DIR} ${LLVM_CMAKE_DIR})
include(TableGen)
include(AddLLVM)
include(AddMLIR)
separate_arguments(kvforge_llvm_definitions NATIVE_COMMAND "${LLVM_DEFINITIONS}")
add_library(kvforge_llvm INTERFACE)
target_include_directories(kvforge_llvm SYSTEM INTERFACE
  ${MLIR_INCLUDE_DIRS} ${LLVM_INCLUDE_DIRS})
target_compile_definitions(kvforge_llvm INTERFACE ${kvforge_llvm_definitions})
