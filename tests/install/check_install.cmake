# Installs BUILD below FOLDER, moves the prefix, and builds and runs there what
# users would: a C++ project by find_package, a C program by pkg-config, the
# command. Then reads what the library needs and exports.
#   -DBUILD -DFOLDER -DSOURCES (this folder) -DC_COMPILER -DCXX_COMPILER
#   -DGENERATOR -DPKG_CONFIG -DREADELF -DNM -DLIBDIR -DSO_VERSION -DSOURCE_ROOT
cmake_minimum_required(VERSION 3.25)

function(run name)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result
    OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${name} failed (${result}):\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

function(expect_output name regex)
  if(NOT output MATCHES "${regex}")
    message(FATAL_ERROR "${name} printed no ${regex}:\n${output}")
  endif()
  message(STATUS "${name}: ${CMAKE_MATCH_0}")
endfunction()

# Kernels are compiled by the installed compiler, found where it lies.
set(ENV{KVFORGE_CACHE_DIR} "")
unset(ENV{KVFORGE_JIT})

file(REMOVE_RECURSE ${FOLDER})
run(install ${CMAKE_COMMAND} --install ${BUILD} --prefix ${FOLDER}/first)
file(RENAME ${FOLDER}/first ${FOLDER}/moved)
set(prefix ${FOLDER}/moved)
set(library ${prefix}/${LIBDIR}/libkvforge.so)

run(configure ${CMAKE_COMMAND} -G ${GENERATOR} -S ${SOURCES}/cpp
  -B ${FOLDER}/cpp -DCMAKE_PREFIX_PATH=${prefix}
  -DCMAKE_CXX_COMPILER=${CXX_COMPILER})
run(build ${CMAKE_COMMAND} --build ${FOLDER}/cpp)
run(consumer.cc ${FOLDER}/cpp/consumer)
expect_output(consumer.cc "OK merged 1.75")

set(ENV{PKG_CONFIG_PATH} ${prefix}/${LIBDIR}/pkgconfig)
run(pkg-config ${PKG_CONFIG} --cflags --libs kvforge)
separate_arguments(flags UNIX_COMMAND "${output}")
run(compile ${C_COMPILER} -std=c11 -Wall -Wextra -Wpedantic -Werror
  ${SOURCES}/c/consumer.c -o ${FOLDER}/consumer_c ${flags})
set(ENV{LD_LIBRARY_PATH} ${prefix}/${LIBDIR})
run(consumer.c ${FOLDER}/consumer_c)
expect_output(consumer.c "OK  merged 1.75")
unset(ENV{LD_LIBRARY_PATH})

run(kvforge ${prefix}/bin/kvforge emit merge/d64/f32 --gpu sm_80)
expect_output(kvforge "kHeadDim = 64")

# Text that would name a folder of this build or its sources.
file(GLOB_RECURSE texts ${prefix}/*.cmake ${prefix}/*.pc ${prefix}/*.py)
foreach(text ${texts})
  file(READ ${text} content)
  foreach(folder ${SOURCE_ROOT} ${BUILD} ${FOLDER})
    string(FIND "${content}" "${folder}/" at)
    if(NOT at EQUAL -1)
      message(FATAL_ERROR "${text} names ${folder}")
    endif()
  endforeach()
endforeach()

run(readelf ${READELF} -d ${library})
expect_output(libkvforge.so "Library soname: .libkvforge.so.${SO_VERSION}.")
if(output MATCHES "(NEEDED|RPATH|RUNPATH)[^\n]*(LLVM|MLIR|clang|cuda|nvrtc|${BUILD})[^\n]*")
  message(FATAL_ERROR "libkvforge.so must not need: ${CMAKE_MATCH_0}")
endif()
run(readelf ${READELF} -d ${prefix}/${LIBDIR}/libkvforge_jit.so)
if(output MATCHES "(RPATH|RUNPATH)[^\n]*${BUILD}[^\n]*")
  message(FATAL_ERROR "libkvforge_jit.so looks in the build: ${CMAKE_MATCH_0}")
endif()

run(nm ${NM} -D --defined-only --format=posix ${library})
string(REGEX MATCHALL "[^\n]+" symbols "${output}")
set(calls 0)
foreach(symbol ${symbols})
  string(REGEX REPLACE " .*" "" symbol "${symbol}")
  if(symbol MATCHES "^kvforge_")
    math(EXPR calls "${calls} + 1")
  elseif(NOT symbol MATCHES "^_Z(N|NK|T[ISV]N)7kvforge")
    message(FATAL_ERROR "libkvforge.so exports ${symbol}; only namespace "
      "kvforge and kvforge_... may be")
  endif()
endforeach()
file(READ ${prefix}/include/kvforge/kernels/c_api.h header)
string(REGEX REPLACE "//[^\n]*" "" header "${header}")
string(REGEX MATCHALL "kvforge_[a-z_0-9]+\\([^;]*\\)" declared "${header}")
list(LENGTH declared count)
if(NOT calls EQUAL count)
  message(FATAL_ERROR "c_api.h declares ${count} calls; libkvforge.so exports "
    "${calls}")
endif()
message(STATUS "libkvforge.so exports ${calls} C calls and namespace kvforge")
