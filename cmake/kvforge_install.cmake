# cmake --install: libkvforge with its C++ and C headers, the compiler that it
# opens, the command, and what find_package, pkg-config and Python need to find
# them. Nothing installed holds a path of this machine: the prefix may be moved.
#
#   bin/kvforge                      include/kvforge/kernels/c_api.h, ...
#   lib/libkvforge.so.0.1            lib/libkvforge_jit.so, opened by it
#   lib/cmake/kvforge                lib/pkgconfig/kvforge.pc, for C
#   share/kvforge/kvforge_ctypes.py

# The command looks for the compiler in ../lib.
set(CMAKE_INSTALL_LIBDIR lib CACHE PATH "Folder of libraries below the prefix")
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# What an engine includes.
set(kvforge_public_headers
  kernels/c_api.h
  kernels/cache_geometry.h
  kernels/decode.h
  kernels/engine.h
  kernels/extend.h
  kernels/gather.h
  kernels/layer_map.h
  kernels/merge.h
  kernels/store.h
  runtime/base/status_macros.h)

# With what these include: every "..." that is a file below the root, or as in
# device code below templates/.
set(kvforge_installed_headers "")
set(pending ${kvforge_public_headers})
while(pending)
  list(POP_FRONT pending header)
  if(header IN_LIST kvforge_installed_headers)
    continue()
  endif()
  list(APPEND kvforge_installed_headers ${header})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
  file(STRINGS ${header} includes REGEX "^#include \"[^\"]+\"")
  foreach(line ${includes})
    string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" included "${line}")
    foreach(candidate ${included} templates/${included})
      if(EXISTS ${PROJECT_SOURCE_DIR}/${candidate})
        list(APPEND pending ${candidate})
        break()
      endif()
    endforeach()
  endforeach()
endwhile()
foreach(header ${kvforge_installed_headers})
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${header}
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/kvforge/${folder})
endforeach()

# Before 1.0 a minor version may change the C++ interface.
set(kvforge_so_version ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set_target_properties(kvforge_library PROPERTIES
  VERSION ${PROJECT_VERSION} SOVERSION ${kvforge_so_version}
  EXPORT_NAME kvforge)
target_include_directories(kvforge_library INTERFACE
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/kvforge>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/kvforge/templates>)
target_compile_features(kvforge_library INTERFACE cxx_std_20)
# LLVM's folder is the system's; ours are not.
set_target_properties(kvforge_jit PROPERTIES
  INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS kvforge_library EXPORT kvforgeTargets)
install(TARGETS kvforge_jit kvforge)

set(kvforge_package ${CMAKE_INSTALL_LIBDIR}/cmake/kvforge)
install(EXPORT kvforgeTargets NAMESPACE kvforge:: DESTINATION ${kvforge_package})
configure_package_config_file(cmake/kvforgeConfig.cmake.in
  ${PROJECT_BINARY_DIR}/kvforgeConfig.cmake
  INSTALL_DESTINATION ${kvforge_package}
  NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/kvforgeConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
configure_file(cmake/kvforge.pc.in ${PROJECT_BINARY_DIR}/kvforge.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/kvforgeConfig.cmake
  ${PROJECT_BINARY_DIR}/kvforgeConfigVersion.cmake
  DESTINATION ${kvforge_package})
install(FILES ${PROJECT_BINARY_DIR}/kvforge.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES examples/kvforge_ctypes.py
  DESTINATION ${CMAKE_INSTALL_DATADIR}/kvforge)
