# libtutti_ranks: process groups in C for programs that run packages (tutti/comm/tutti_ranks.h), beside libtutti_runtime and of the same
# sources as the full library. It has the transports that need no other library, and with TUTTI_RUNTIME_GLOO=ON also gloo and hier.
option(TUTTI_RUNTIME_GLOO "Give libtutti_ranks the transports gloo and hier, which need libgloo" OFF)
include(TuttiCollectives)
include(TuttiEngines)
tutti_collectives()

set(comm_folders comm/collectives comm/exchanges comm/runtime_only comm/shm)
if(TUTTI_RUNTIME_GLOO)
  find_package(Gloo CONFIG REQUIRED)
  include(TuttiGloo)
  tutti_check_gloo()
  list(APPEND comm_folders comm/message comm/gloo comm/hier)
  set(ranks_libraries -lgloo)
endif()
# Left out: what makes ops and graphs of collectives, symmetric memory, the launcher, the transports that join no processes, what reads
# records as JSON, and the sources that need the code generator and libcrypto, in whose places runtime_only has others. The rows of collectives stand beside functions that call ops:
# TUTTI_WITHOUT_OPS takes the references to these out of the rows, and the linker drops them (--gc-sections). All is compiled for size but
# the reductions, where the time goes.
tutti_runtime_objects(tutti_ranks_objects FOLDERS diagnose job job/host job/rendezvous job/runtime_only job/store comm ${comm_folders}
  MORE ${CMAKE_CURRENT_SOURCE_DIR}/comm/functional/work_registry.cpp ${TUTTI_COLLECTIVE_TABLE_SOURCE}
  LEFT_OUT "/(diagnosis[a-z_]*|flight_dump_reader|rank_group|reduce_nodes|run_ranks|shrink|symmetric_buffer|thread_rendezvous|store/key_proof)[.]cpp$"
  OPTIONS -Os -DTUTTI_WITHOUT_OPS PRECOMPILED tensor/tensor.h)
set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/comm/runtime_only/combine.cpp PROPERTIES COMPILE_OPTIONS -O3 SKIP_PRECOMPILE_HEADERS ON)
if(TUTTI_RUNTIME_GLOO)
  target_link_libraries(tutti_ranks_objects PRIVATE gloo)
endif()
tutti_engine_table(tutti_ranks_objects ROW TUTTI_PROCESS_SERVICES TYPE ProcessServices SUFFIX _services
                   FUNCTION process_services HEADER tutti/job/distributed.h NAMESPACE tutti::comm)
tutti_engine_table(tutti_ranks_objects ROW TUTTI_DEVICE_BACKEND TYPE DeviceBackend PREFIX device_backend_
                   FUNCTION device_backends HEADER tutti/comm/device_backends.h NAMESPACE tutti::comm)
tutti_engine_table(tutti_ranks_objects ROW TUTTI_TRANSPORT TYPE TransportEngine PREFIX transport_
                   FUNCTION transport_engines HEADER tutti/comm/transports.h NAMESPACE tutti::comm)
set(gloo_why_not "")
if(NOT TUTTI_RUNTIME_GLOO)
  set(gloo_why_not "libtutti_ranks was configured with TUTTI_RUNTIME_GLOO=OFF")
endif()
target_compile_definitions(tutti_ranks_objects PRIVATE TUTTI_VERSION="${PROJECT_VERSION}"
  TUTTI_MPI_WHY_NOT="the full library has it, and libtutti_ranks does not"
  TUTTI_GLOO_WHY_NOT="${gloo_why_not}" TUTTI_HIER_WHY_NOT="${gloo_why_not}")
tutti_compile_together(tutti_ranks_objects)

# The shared library stands by itself, and stays in memory once it is opened, because threads of its groups may still run. The static one
# takes from libtutti_runtime what both have.
tutti_c_library(tutti_ranks COMPONENT package_ranks EXPORTS ${CMAKE_CURRENT_SOURCE_DIR}/comm/runtime_only/exports.map
  SHARED $<TARGET_OBJECTS:tutti_ranks_objects> $<TARGET_OBJECTS:tutti_runtime_base>
  STATIC $<TARGET_OBJECTS:tutti_ranks_objects>)
target_link_options(tutti_ranks_shared PRIVATE LINKER:-z,nodelete)
target_link_libraries(tutti_ranks_static PUBLIC tutti_runtime_static)
if(TUTTI_RUNTIME_GLOO)
  target_link_libraries(tutti_ranks_shared PRIVATE gloo)
  target_link_libraries(tutti_ranks_static PUBLIC gloo)
endif()
install(FILES ${CMAKE_CURRENT_SOURCE_DIR}/comm/tutti_ranks.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tutti/comm)
