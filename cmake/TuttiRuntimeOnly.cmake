# TUTTI_RUNTIME_ONLY=ON: libtutti_runtime, which runs packages (docs/packages.md), and libtutti_ranks (TuttiRanks.cmake), each as a shared
# and as a static library. Nothing else is built, and of other libraries they take the headers of fmt and xxHash: no LLVM, MPI, JSON or
# debug information is looked for.
# The sources are those of the full library, without what only makes programs: TUTTI_RUNTIME_ONLY also leaves facets of ops out
# (tutti/ops/engine/op_def.h).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
find_path(FMT_INCLUDE_DIR fmt/format-inl.h REQUIRED)
find_package(Threads REQUIRED)
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)

# tutti_runtime_objects(<name> LEFT_OUT <pattern of files> FOLDERS <folder of tutti/>... MORE <file>... OPTIONS <compile option>...
#                       PRECOMPILED <header that most files read>)
function(tutti_runtime_objects name)
  cmake_parse_arguments(OBJECTS "" "LEFT_OUT;PRECOMPILED" "FOLDERS;OPTIONS;MORE" ${ARGN})
  set(sources ${OBJECTS_MORE})
  foreach(folder IN LISTS OBJECTS_FOLDERS)
    file(GLOB found CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cpp)
    list(APPEND sources ${found})
  endforeach()
  list(FILTER sources EXCLUDE REGEX "${OBJECTS_LEFT_OUT}")
  add_library(${name} OBJECT ${sources})
  tutti_compile_options(${name})
  target_compile_features(${name} PUBLIC cxx_std_20)
  target_compile_definitions(${name} PRIVATE TUTTI_RUNTIME_ONLY)
  target_compile_options(${name} PRIVATE -ffunction-sections -fdata-sections ${OBJECTS_OPTIONS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/generated)
  target_include_directories(${name} SYSTEM PRIVATE ${XXHASH_INCLUDE_DIR} ${FMT_INCLUDE_DIR})
  target_link_libraries(${name} PRIVATE Threads::Threads)
  set_target_properties(${name} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  tutti_precompile(${name} HEADERS ${CMAKE_CURRENT_SOURCE_DIR}/${OBJECTS_PRECOMPILED})
endfunction()

# What both libraries have. Left out: what merges and writes traces, and finds lines of running programs.
tutti_runtime_objects(tutti_runtime_base FOLDERS core runtime runtime/trace tensor
  MORE ${CMAKE_CURRENT_SOURCE_DIR}/deploy/runtime_only/format.cpp
  PRECOMPILED ops/engine/facets.h LEFT_OUT "/(json_document|json_parser|source_lines|trace_merge|clock_alignment|chrome_trace|profiler)[.]cpp$")
set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/deploy/runtime_only/format.cpp PROPERTIES COMPILE_OPTIONS -Os SKIP_PRECOMPILE_HEADERS ON)
# Left out: what opens libraries, which are the code generator and products of others, and the reductions of ranks.
include(TuttiOpTable)
tutti_op_table()
file(GLOB op_folders RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} LIST_DIRECTORIES true ${CMAKE_CURRENT_SOURCE_DIR}/ops/*)
list(FILTER op_folders EXCLUDE REGEX "[.]")
tutti_runtime_objects(tutti_runtime_kernels FOLDERS codegen codegen/choice codegen/gemm codegen/blocks codegen/codes ops ${op_folders}
  PRECOMPILED ops/engine/facets.h MORE ${TUTTI_OP_TABLE_SOURCE} LEFT_OUT "/(compiler_plugin|plugin_file|codegen/combine)[.]cpp$|/gemm/library[.]cpp$"
  OPTIONS $<$<CXX_COMPILER_ID:GNU>:-falign-functions=64;-falign-loops=64>)
# What makes steps, and runs those that were made in the process: small rather than fast, as kernels take the time.
tutti_runtime_objects(tutti_runtime_plans FOLDERS plan deploy deploy/runtime_only
  MORE ${CMAKE_CURRENT_SOURCE_DIR}/plan/passes/plan_memory.cpp
  LEFT_OUT "/executable[a-z_]*[.]cpp$|/(runtime_only/format|dump|kernel_step|kernel_writer|recipe_cost|recipe_facts|key_slots|dependencies|sampled_attrs)[.]cpp$"
  PRECOMPILED ops/engine/facets.h OPTIONS -Os)
tutti_compile_together(tutti_runtime_base tutti_runtime_plans)

include(TuttiGeneratorFingerprint)
file(GLOB llvm_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/codegen/llvm/*.cpp)
file(GLOB core_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/core/*.cpp)
tutti_generator_fingerprint(fingerprint_source SOURCES ${llvm_sources} codegen/object_loader.cpp LINKED ${core_sources})
target_sources(tutti_runtime_kernels PRIVATE ${fingerprint_source})

# The shared library exports the C interface and nothing else. What a program links of the static one is hidden in it.
# tutti_c_library(<name> COMPONENT <component of find_package> EXPORTS <version script> SHARED <sources> STATIC <sources>), installed with
# pkg-config's <name>: Tutti::<component> and Tutti::<component>_static.
function(tutti_c_library name)
  cmake_parse_arguments(LIBRARY "" "COMPONENT;EXPORTS" "SHARED;STATIC" ${ARGN})
  foreach(kind IN ITEMS SHARED STATIC)
    string(TOLOWER ${kind} suffix)
    set(target ${name}_${suffix})
    add_library(${target} ${kind} ${LIBRARY_${kind}})
    set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name} LINKER_LANGUAGE CXX)
    target_link_libraries(${target} PUBLIC Threads::Threads)
    target_include_directories(${target} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    if(TUTTI_SANITIZE)
      target_link_options(${target} PUBLIC -fsanitize=${TUTTI_SANITIZE})
    endif()
  endforeach()
  set_target_properties(${name}_shared PROPERTIES EXPORT_NAME ${LIBRARY_COMPONENT} VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} LINK_DEPENDS ${LIBRARY_EXPORTS})
  set_target_properties(${name}_static PROPERTIES EXPORT_NAME ${LIBRARY_COMPONENT}_static)
  # The instruction set is noted here once more: libraries of objects do not hand their link options on.
  target_link_options(${name}_shared PRIVATE LINKER:--gc-sections LINKER:-z,x86-64-v3 LINKER:--version-script=${LIBRARY_EXPORTS})
  if(NOT TUTTI_SANITIZE)
    target_link_options(${name}_shared PRIVATE LINKER:-z,defs)
  endif()
  target_link_options(${name}_static INTERFACE LINKER:--gc-sections LINKER:-z,x86-64-v3)

  set(export Tutti_${LIBRARY_COMPONENT})
  install(TARGETS ${name}_shared ${name}_static EXPORT ${export}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT ${export} NAMESPACE Tutti:: FILE ${export}_targets.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Tutti)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/${export}.cmake.in ${PROJECT_BINARY_DIR}/${export}.cmake @ONLY)
  file(RELATIVE_PATH up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${export}.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Tutti)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()

set(runtime_objects $<TARGET_OBJECTS:tutti_runtime_base> $<TARGET_OBJECTS:tutti_runtime_kernels> $<TARGET_OBJECTS:tutti_runtime_plans>)
tutti_c_library(tutti_runtime COMPONENT package_runtime EXPORTS ${CMAKE_CURRENT_SOURCE_DIR}/deploy/runtime_only/exports.map
  SHARED ${runtime_objects} STATIC ${runtime_objects})
file(GLOB headers CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/deploy/tutti_*.h ${CMAKE_CURRENT_SOURCE_DIR}/deploy/tutti_*.hpp)
install(FILES ${headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tutti/deploy)
include(TuttiRanks)

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/TuttiConfig.cmake.in ${PROJECT_BINARY_DIR}/TuttiConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Tutti)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/TuttiConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/TuttiConfig.cmake ${PROJECT_BINARY_DIR}/TuttiConfigVersion.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Tutti)
