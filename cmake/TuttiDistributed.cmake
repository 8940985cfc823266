# What the rooms job, symm and comm are made of. TUTTI_DISTRIBUTED=OFF leaves out all that needs other processes, other hosts or a GPU
# library; ranks as threads of one process stay. What is left out is reached through tables of engines only (cmake/TuttiEngines.cmake),
# where its row is then missing, so nothing that asks them differs.
include(TuttiEngines)

# Paths below tutti. job/host/fd_passing stays: ranks that are threads give each other memory files with it.
set(left_out_sources
  "comm/(gloo|hier|message|mpi|nccl)/.*"
  "comm/shm/shm_rendezvous"
  "comm/tutti_ranks"
  "job/launch/(failure|launch_.*|node_.*|process_services|rank_.*)"
  "job/rendezvous/(find_store|local_meeting)"
  "job/store/(key_proof|port_owner|server_.*|socket|store_requests|tcp_.*)"
  "symm/(cuda_.*|library|native_backend|nccl_backend|nvshmem_backend)")

# Why this build, which is distributed, has no transport `engine`; "" when it has. No semicolons: it becomes a definition.
function(tutti_why_not engine found why_not)
  string(TOUPPER ${engine} ENGINE)
  set(text "")
  if(NOT TUTTI_${ENGINE})
    set(text "Tutti was configured with TUTTI_${ENGINE}=OFF")
  elseif(NOT ${found})
    set(text "its library was not found when Tutti was configured, so install the ${engine} package of packages.txt and configure again")
  endif()
  set(${why_not} "${text}" PARENT_SCOPE)
endfunction()

# The rooms are there already, with the sources that lie directly in their folders.
function(tutti_complete_distributed)
  tutti_why_not(mpi MPI_CXX_FOUND mpi_why_not)
  tutti_why_not(gloo Gloo_FOUND gloo_why_not)
  foreach(room IN ITEMS job symm comm)
    get_target_property(sources tutti_${room} SOURCES)
    file(GLOB deeper CONFIGURE_DEPENDS ${room}/*/*.cpp)
    list(APPEND sources ${deeper})
    list(FILTER sources EXCLUDE REGEX "/runtime_only/")  # what libtutti_ranks has in the place of other sources
    foreach(engine IN ITEMS mpi gloo)
      if(NOT "${${engine}_why_not}" STREQUAL "")
        list(FILTER sources EXCLUDE REGEX "/tutti/comm/${engine}/")
      endif()
    endforeach()
    if(NOT TUTTI_DISTRIBUTED)
      foreach(pattern IN LISTS left_out_sources)
        list(FILTER sources EXCLUDE REGEX "/tutti/${pattern}\\.cpp$")
      endforeach()
    endif()
    set_property(TARGET tutti_${room} PROPERTY SOURCES ${sources})
  endforeach()
  if(TUTTI_DISTRIBUTED)
    target_link_libraries(tutti_job PRIVATE PkgConfig::CRYPTO)
    set(libraries_mpi MPI::MPI_CXX)
    set(libraries_gloo gloo)
    foreach(engine IN ITEMS mpi gloo)
      if("${${engine}_why_not}" STREQUAL "")
        target_link_libraries(tutti_comm PRIVATE ${libraries_${engine}})
      endif()
    endforeach()
  endif()
  tutti_engine_table(tutti_job  ROW TUTTI_PROCESS_SERVICES TYPE ProcessServices SUFFIX _services
                     FUNCTION process_services HEADER tutti/job/distributed.h NAMESPACE tutti::comm)
  tutti_engine_table(tutti_symm ROW TUTTI_SYMM_BACKEND TYPE BackendEngine PREFIX backend_engine_
                     FUNCTION backend_engines HEADER tutti/symm/backend.h NAMESPACE tutti::comm::symm)
  tutti_engine_table(tutti_comm ROW TUTTI_DEVICE_BACKEND TYPE DeviceBackend PREFIX device_backend_
                     FUNCTION device_backends HEADER tutti/comm/device_backends.h NAMESPACE tutti::comm)
  tutti_engine_table(tutti_comm ROW TUTTI_TRANSPORT TYPE TransportEngine PREFIX transport_
                     FUNCTION transport_engines HEADER tutti/comm/transports.h NAMESPACE tutti::comm)
  target_sources(tutti_comm PRIVATE ${TUTTI_COLLECTIVE_TABLE_SOURCE})
  target_compile_definitions(tutti_comm PRIVATE TUTTI_MPI_WHY_NOT="${mpi_why_not}" TUTTI_GLOO_WHY_NOT="${gloo_why_not}" TUTTI_HIER_WHY_NOT="")
endfunction()
