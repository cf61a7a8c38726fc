# SPDX-License-Identifier: Apache-2.0
#
# Runs a port as vcpkg would: what it calls is defined here, with the arguments
# that it takes, and builds in earnest with CMake. It says what was called.
#
#   cmake -DPORT=FILE -DOUT=FOLDER -DFEATURES=LIST
#         -DVCPKG_LIBRARY_LINKAGE=KIND -P vcpkg.cmake
#
# vcpkg itself moves the CMake package to share/hwt besides.

cmake_minimum_required(VERSION 3.13)
set(CURRENT_PACKAGES_DIR "${OUT}/packages")
set(kinds rel dbg)
set(type_rel Release)
set(type_dbg Debug)
set(prefix_rel "${CURRENT_PACKAGES_DIR}")
set(prefix_dbg "${CURRENT_PACKAGES_DIR}/debug")

function(run)
  execute_process(COMMAND ${ARGN}
    RESULT_VARIABLE status
    OUTPUT_QUIET
    ERROR_VARIABLE said)
  if(status OR said MATCHES "variables were not used")
    message(FATAL_ERROR "failed: ${ARGN}\n${said}")
  endif()
endfunction()

# called(NAME VALUES LISTS ARGUMENT...): only with what it takes.
macro(called name values lists)
  cmake_parse_arguments(arg "" "${values}" "${lists}" ${ARGN})
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "${name}: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  message(STATUS "called ${name} ${ARGN}")
endmacro()

function(vcpkg_check_features)
  called(vcpkg_check_features OUT_FEATURE_OPTIONS FEATURES ${ARGN})
  set(options "")
  while(arg_FEATURES)
    list(GET arg_FEATURES 0 feature)
    list(GET arg_FEATURES 1 option)
    list(REMOVE_AT arg_FEATURES 0 1)
    if(feature IN_LIST FEATURES)
      list(APPEND options -D${option}=ON)
    else()
      list(APPEND options -D${option}=OFF)
    endif()
  endwhile()
  set(${arg_OUT_FEATURE_OPTIONS} "${options}" PARENT_SCOPE)
endfunction()

function(vcpkg_cmake_configure)
  called(vcpkg_cmake_configure SOURCE_PATH OPTIONS ${ARGN})
  set(shared OFF)
  if(VCPKG_LIBRARY_LINKAGE STREQUAL dynamic)
    set(shared ON)
  endif()
  foreach(kind ${kinds})
    run("${CMAKE_COMMAND}" -S "${arg_SOURCE_PATH}" -B "${OUT}/${kind}"
      -G Ninja -DCMAKE_BUILD_TYPE=${type_${kind}} ${arg_OPTIONS}
      "-DCMAKE_INSTALL_PREFIX=${prefix_${kind}}" -DBUILD_SHARED_LIBS=${shared}
      -DCMAKE_INSTALL_LIBDIR:STRING=lib)
  endforeach()
endfunction()

function(vcpkg_cmake_install)
  called(vcpkg_cmake_install "" "" ${ARGN})
  foreach(kind ${kinds})
    run("${CMAKE_COMMAND}" --build "${OUT}/${kind}" --target install -j 2)
  endforeach()
endfunction()

function(vcpkg_cmake_config_fixup)
  called(vcpkg_cmake_config_fixup "PACKAGE_NAME;CONFIG_PATH" "" ${ARGN})
  foreach(kind ${kinds})
    if(NOT EXISTS "${prefix_${kind}}/${arg_CONFIG_PATH}/hwt-config.cmake")
      message(FATAL_ERROR "no package in ${arg_CONFIG_PATH}")
    endif()
  endforeach()
endfunction()

function(vcpkg_fixup_pkgconfig)
  called(vcpkg_fixup_pkgconfig "" "" ${ARGN})
endfunction()

function(vcpkg_install_copyright)
  called(vcpkg_install_copyright COMMENT FILE_LIST ${ARGN})
  foreach(file ${arg_FILE_LIST})
    file(INSTALL "${file}" DESTINATION "${CURRENT_PACKAGES_DIR}/share/hwt")
  endforeach()
endfunction()

include("${PORT}")
