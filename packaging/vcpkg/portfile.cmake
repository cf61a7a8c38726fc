# SPDX-License-Identifier: Apache-2.0
#
# A port of this tree:
#
#   vcpkg install hwt[purgatory,durable] --overlay-ports=TREE/packaging/vcpkg
#
# vcpkg looks at this folder alone to see whether a port has changed: remove hwt
# before other sources are installed. In a registry the first line becomes
# vcpkg_from_github or the like. Not tried with vcpkg itself: see
# test/check/package/vcpkg.cmake.
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)

vcpkg_check_features(OUT_FEATURE_OPTIONS FEATURE_OPTIONS
  FEATURES
    durable HWT_DURABLE
    purgatory HWT_PURGATORY)

# What is built does not depend on what headers the system happens to have.
vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS
    ${FEATURE_OPTIONS}
    -DHWT_CK=OFF
    -DHWT_PROBES=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/hwt)
vcpkg_fixup_pkgconfig()

file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
