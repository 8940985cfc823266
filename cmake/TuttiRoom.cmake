# Headers that most files read are parsed once for each of the programs and libraries that share compile options. Files
# still include what they use: the build without them (TUTTI_PRECOMPILED_HEADERS=OFF, as the preset `single`) finds what is missing.
set(TUTTI_COMMON_HEADERS <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstring> <filesystem> <functional> <limits> <map>
  <memory> <mutex> <numeric> <optional> <set> <span> <sstream> <string> <string_view> <thread> <tuple> <type_traits> <utility> <vector> <fmt/format.h>)

# tutti_precompile(<target> OWNER <target with the same options> | HEADERS <header>...)
function(tutti_precompile target)
  cmake_parse_arguments(PCH "" "OWNER" "HEADERS" ${ARGN})
  if(NOT TUTTI_PRECOMPILED_HEADERS)
    return()
  endif()
  # The first is for ccache. GCC 12 reports the others falsely in std::string, and only in headers that it does not take for
  # the system's, as those of a precompiled header.
  target_compile_options(${target} PRIVATE -fpch-preprocess -Wno-stringop-overflow -Wno-stringop-overread -Wno-array-bounds)
  if(PCH_OWNER AND NOT PCH_OWNER STREQUAL target)
    target_precompile_headers(${target} REUSE_FROM ${PCH_OWNER})
  else()
    target_precompile_headers(${target} PRIVATE ${TUTTI_COMMON_HEADERS} ${PCH_HEADERS})
  endif()
endfunction()

# Files of one folder are compiled four at a time: what they read and instantiate is then compiled once, which takes a quarter off
# their time. In the build without precompiled headers each file stands by itself. Files with compile options of their own do so always.
function(tutti_compile_together)
  if(NOT TUTTI_PRECOMPILED_HEADERS)
    return()
  endif()
  foreach(target IN LISTS ARGN)
    get_target_property(sources ${target} SOURCES)
    set(count 0)
    set(last_folder "")
    foreach(source IN LISTS sources)
      cmake_path(GET source PARENT_PATH folder)
      if(NOT folder STREQUAL last_folder)
        set(count 0)
        set(last_folder ${folder})
      endif()
      cmake_path(GET folder FILENAME name)
      math(EXPR group "${count} / 4")
      set_property(SOURCE ${source} PROPERTY UNITY_GROUP ${name}_${group})
      math(EXPR count "${count} + 1")
    endforeach()
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
    # GCC 12 reports the first where a header of the group is meant, the second falsely in std::variant.
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage -Wno-maybe-uninitialized)
  endforeach()
endfunction()

# One room = one static library made of the .cpp files of its folder, and with FOLDERS of the folders in it, with the alias Tutti::<room>.
# DEPS are rooms below it; LIBS are third-party targets its .cpp files use; OPTIONS are compile options of its own; PRECOMPILED
# is the room, with the same options, whose precompiled header it shares (core by default); a room with OPTIONS or HEADERS and
# without PRECOMPILED has one of its own, to which HEADERS are added.
function(tutti_room name)
  cmake_parse_arguments(ROOM "FOLDERS" "PRECOMPILED" "DEPS;LIBS;OPTIONS;HEADERS" ${ARGN})
  set(folder ${CMAKE_CURRENT_SOURCE_DIR}/${name})
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cpp)
  if(ROOM_FOLDERS)
    file(GLOB sources_of_folders CONFIGURE_DEPENDS ${folder}/*/*.cpp)
    list(APPEND sources ${sources_of_folders})
  endif()
  if(NOT sources)
    add_library(tutti_${name} INTERFACE)
    set(scope INTERFACE)
  else()
    add_library(tutti_${name} STATIC ${sources})
    set(scope PUBLIC)
    tutti_compile_options(tutti_${name})
    target_link_libraries(tutti_${name} PRIVATE ${ROOM_LIBS})
    target_compile_options(tutti_${name} PRIVATE ${ROOM_OPTIONS})
    if(ROOM_PRECOMPILED)
      tutti_precompile(tutti_${name} OWNER tutti_${ROOM_PRECOMPILED})
    elseif(ROOM_OPTIONS OR ROOM_HEADERS)
      tutti_precompile(tutti_${name} HEADERS ${ROOM_HEADERS})
    else()
      tutti_precompile(tutti_${name} OWNER tutti_core)
    endif()
  endif()
  add_library(Tutti::${name} ALIAS tutti_${name})
  set_target_properties(tutti_${name} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(tutti_${name} ${scope} cxx_std_20)
  target_include_directories(tutti_${name} ${scope}
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/generated>
    $<INSTALL_INTERFACE:include>)
  foreach(dep IN LISTS ROOM_DEPS)
    target_link_libraries(tutti_${name} ${scope} Tutti::${dep})
  endforeach()
  set_property(GLOBAL APPEND PROPERTY TUTTI_ROOMS ${name})
endfunction()

# x86-64-v3 (AVX2, FMA) is the floor of the code that is compiled ahead of time, which the linker notes for the loader: on an older
# processor a program ends with "CPU ISA level is lower than required" and not in the middle of something. Contraction is off
# because a fused multiply-add appears only where a formula asks for it (numerics contract, N1). GCC 12 reports
# -Wrestrict falsely on std::string; fields of a facet table that are left out have defaults. Clang has not all of the warnings that
# are taken from GCC here, and reports that libstdc++ 12 calls a function that it deprecates.
function(tutti_compile_options target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wno-missing-field-initializers -Wno-restrict -ffp-contract=off -fno-math-errno -march=x86-64-v3
    $<$<BOOL:${TUTTI_WERROR}>:-Werror>
    "$<$<CXX_COMPILER_ID:Clang>:-Wno-unknown-warning-option;-Wno-error=deprecated-declarations>")
  target_link_options(${target} PUBLIC LINKER:-z,x86-64-v3)
  if(TUTTI_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${TUTTI_SANITIZE} -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=${TUTTI_SANITIZE})
  endif()
endfunction()

# Gives those of the files that read them the folders of the sources and of the build. The others have the same compile command in
# every checkout, so that a compiler cache serves all of them.
function(tutti_define_places)
  foreach(file IN LISTS ARGN)
    file(STRINGS ${file} places REGEX "TUTTI_(SOURCE|BINARY)_DIR|number_cases.h" LIMIT_COUNT 1)
    if(places)
      set_property(SOURCE ${file} APPEND PROPERTY COMPILE_DEFINITIONS
        TUTTI_SOURCE_DIR="${PROJECT_SOURCE_DIR}" TUTTI_BINARY_DIR="${PROJECT_BINARY_DIR}")
    endif()
  endforeach()
endfunction()

# One test program per room: every tests/<room>/*_test.cpp, run by ctest under the label <room>, but
# for TUTTI_TESTS_LEFT_OUT, paths below the folder of tests. PRECOMPILED is the suite, with the same options, whose precompiled
# header it shares (core by default); a suite with OPTIONS and without PRECOMPILED has one of its own. Tests spend their time in the library: they compile with less
# optimization, which takes a quarter off their build. LEFT_OUT is a pattern of tests that this machine cannot run.
function(tutti_test_suite room)
  cmake_parse_arguments(SUITE "" "PRECOMPILED;LEFT_OUT" "LIBS;OPTIONS" ${ARGN})
  set(test_headers <gtest/gtest.h> ${PROJECT_SOURCE_DIR}/tutti/tensor/tensor.h)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${room}/*_test.cpp)
  file(GLOB helpers CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${room}/support/*.cpp)
  foreach(file IN LISTS TUTTI_TESTS_LEFT_OUT)
    list(REMOVE_ITEM sources ${CMAKE_CURRENT_SOURCE_DIR}/${file})
    list(REMOVE_ITEM helpers ${CMAKE_CURRENT_SOURCE_DIR}/${file})
  endforeach()
  if(NOT sources)
    return()
  endif()
  add_executable(${room}_test ${sources} ${helpers})
  tutti_compile_options(${room}_test)
  target_compile_options(${room}_test PRIVATE $<$<CONFIG:Release>:-Og>)
  target_include_directories(${room}_test PRIVATE ${PROJECT_SOURCE_DIR})
  tutti_define_places(${sources} ${helpers})
  target_link_libraries(${room}_test PRIVATE ${SUITE_LIBS} GTest::gtest GTest::gtest_main)
  target_compile_options(${room}_test PRIVATE ${SUITE_OPTIONS})
  if(SUITE_PRECOMPILED)
    tutti_precompile(${room}_test OWNER ${SUITE_PRECOMPILED}_test)
  elseif(SUITE_OPTIONS)
    tutti_precompile(${room}_test HEADERS ${test_headers})
  else()
    tutti_precompile(${room}_test OWNER core_test HEADERS ${test_headers})
  endif()
  set(filter "")
  if(SUITE_LEFT_OUT)
    set(filter TEST_FILTER "-${SUITE_LEFT_OUT}")
  endif()
  gtest_discover_tests(${room}_test ${filter} DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS ${room} TIMEOUT 600 ENVIRONMENT "TUTTI_FLIGHT_RECORDER_DUMP=${PROJECT_BINARY_DIR}/flight_recorder_")
endfunction()
