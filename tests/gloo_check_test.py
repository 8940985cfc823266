"""A gloo to which connections cannot be handed over is refused when the build is configured."""
import pathlib
import subprocess
import sys
import tempfile

PROJECT = """cmake_minimum_required(VERSION 3.25)
project(Checked CXX)
set(CMAKE_CXX_STANDARD 20)
list(APPEND CMAKE_MODULE_PATH "{root}/cmake")
find_package(Gloo CONFIG REQUIRED)
target_include_directories(gloo BEFORE INTERFACE "{root_of_headers}")
include(TuttiGloo)
tutti_check_gloo()
"""


def configure(root: str, compiler: str, gloo: str, folder: pathlib.Path, has_shared_listener: bool) -> subprocess.CompletedProcess:
    headers = folder / "headers" / "gloo" / "transport" / "tcp"
    headers.mkdir(parents=True)
    if has_shared_listener:
        (headers / "listener.h").write_text("#pragma once\n")
    (folder / "CMakeLists.txt").write_text(PROJECT.format(root=root, root_of_headers=folder / "headers"))
    return subprocess.run(["cmake", "-S", folder, "-B", folder / "build", f"-DCMAKE_CXX_COMPILER={compiler}", f"-DGloo_DIR={gloo}"], capture_output=True, text=True)


def main() -> int:
    for has_shared_listener in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            result = configure(*sys.argv[1:4], pathlib.Path(folder), has_shared_listener)
        said = " ".join(result.stderr.split())
        if (result.returncode != 0) != has_shared_listener:
            print(f"shared listener: {has_shared_listener}; configuring ended with {result.returncode}: {result.stdout}{result.stderr}")
            return 1
        if has_shared_listener and not ("does not take connections that were made outside of it" in said and "-DTUTTI_GLOO=OFF" in said):
            print(f"the error does not say what to do: {said}")
            return 1
    return 0


sys.exit(main())
