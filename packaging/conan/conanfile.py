# SPDX-License-Identifier: Apache-2.0
"""A package of this tree for Conan 2: conan create packaging/conan.

The modules are options, as what they need is: -o "hwt/*:durable=True". Without
ConcurrencyKit, which Conan Center does not have, C11's atomics serve. Not tried
with Conan itself: see test/check/package/conan.
"""
import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load, rmdir
from conan.tools.system.package_manager import Apt

required_conan_version = ">=2.0"


class HwtConan(ConanFile):
    name = "hwt"
    description = "A hashed wheel timer for network programs"
    license = "Apache-2.0"
    topics = ("timer", "timeout", "hashed-wheel", "timing-wheel")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {
        "shared": [True, False],
        "purgatory": [True, False],
        "durable": [True, False],
    }
    default_options = {"shared": False, "purgatory": False, "durable": False}

    def _tree(self):
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        header = load(self, os.path.join(self._tree(), "hwt.h"))
        number = re.compile(r"^#define HWT_VERSION_[MP]\w+ (\d+)", re.M)
        self.version = ".".join(number.findall(header))

    def export_sources(self):
        for pattern in (
            "CMakeLists.txt", "LICENSE", "*.c", "*.h", "*.hpp", "core/*",
            "executor/*", "observe/*", "packaging/*.in", "packaging/*.map",
            "modules/*",
        ):
            copy(self, pattern, self._tree(), self.export_sources_folder,
                 excludes=("build/*", "test/*", "perf/*", "examples/*",
                           "modules/*/test/*", "modules/*/perf/*"))

    def configure(self):
        # It is C, and what it exports does not depend on C++'s library.
        self.settings.rm_safe("compiler.libcxx")
        self.settings.rm_safe("compiler.cppstd")

    def validate(self):
        if (self.settings.os, self.settings.arch) != ("Linux", "x86_64"):
            raise ConanInvalidConfiguration("hwt needs Linux on x86-64")

    def layout(self):
        self.folders.root = os.path.join("..", "..")
        cmake_layout(self)

    def requirements(self):
        if self.options.durable:
            self.requires("hiredis/1.2.0")

    def system_requirements(self):
        # A header alone; libbsd itself is not linked.
        if self.options.purgatory:
            Apt(self).check(["libbsd-dev"])

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.user_presets_path = False
        toolchain.cache_variables["HWT_CK"] = "OFF"
        toolchain.cache_variables["HWT_PROBES"] = "OFF"
        for module in ("purgatory", "durable"):
            built = self.options.get_safe(module)
            toolchain.cache_variables["HWT_" + module.upper()] = (
                "ON" if built else "OFF"
            )
        toolchain.generate()
        CMakeDeps(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        copy(self, "LICENSE", self.source_folder,
             os.path.join(self.package_folder, "licenses"))
        CMake(self).install()
        # Conan makes these itself, of what follows.
        rmdir(self, os.path.join(self.package_folder, "lib", "cmake"))
        rmdir(self, os.path.join(self.package_folder, "lib", "pkgconfig"))

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "hwt")
        # Else the whole package would be hwt::hwt.
        self.cpp_info.set_property("cmake_target_name", "hwt::all")
        self.cpp_info.set_property("pkg_config_name", "hwt-all")
        self._component("hwt", "hwt", [])
        self._component("checkout", "hwt_checkout", ["hwt"])
        if self.options.purgatory:
            self._component("purgatory", "hwt_purgatory", ["hwt"])
        if self.options.durable:
            self._component("durable", "hwt_durable",
                            ["hwt", "hiredis::hiredislib"])

    def _component(self, name, library, requires):
        component = self.cpp_info.components[name]
        component.libs = [library]
        component.requires = requires
        component.system_libs = ["pthread"]
        component.set_property("cmake_target_name", "hwt::" + name)
        component.set_property("pkg_config_name", library.replace("_", "-"))
        if not self.options.shared:
            component.set_property(
                "cmake_target_aliases", ["hwt::" + name + "_static"]
            )
