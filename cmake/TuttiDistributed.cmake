# What the rooms job, symm and comm are made of. TUTTI_DISTRIBUTED=OFF leaves out all that needs other processes, other hosts or a GPU
# library; ranks as threads of one process stay. A source that is left out has a stand-in in the folder left_out of its room, which
# defines what the same headers declare and says how to get the real one, so nothing that includes them differs. Headers
# for the insides of such a part (job/launch/, comm/message/) have none: nobody else includes them.

# Paths below tutti. job/host/fd_passing stays: ranks that are threads give each other memory files with it.
set(left_out_sources
  "comm/(gloo|hier|message|mpi|nccl)/.*"
  "comm/shm/shm_rendezvous"
  "job/distributed"
  "job/launch/(failure|launch_.*|launcher|node_.*|rank_.*)"
  "job/rendezvous/(local_meeting|rendezvous)"
  "job/store/(job_key|port_owner|server_.*|socket|store_requests|tcp_.*)"
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
    list(FILTER sources EXCLUDE REGEX "/left_out/")
    set(stand_ins "")
    if(NOT TUTTI_DISTRIBUTED)
      foreach(pattern IN LISTS left_out_sources)
        list(FILTER sources EXCLUDE REGEX "/tutti/${pattern}\\.cpp$")
      endforeach()
      file(GLOB stand_ins CONFIGURE_DEPENDS ${room}/left_out/*.cpp)
    elseif(room STREQUAL comm)
      foreach(engine IN ITEMS mpi gloo)
        if(NOT "${${engine}_why_not}" STREQUAL "")
          list(FILTER sources EXCLUDE REGEX "/comm/${engine}/")
          list(APPEND stand_ins ${CMAKE_CURRENT_SOURCE_DIR}/comm/left_out/${engine}.cpp)
        endif()
      endforeach()
    endif()
    set_property(TARGET tutti_${room} PROPERTY SOURCES ${sources} ${stand_ins})
    # A function that no header declares any more would stand in for nothing.
    set_source_files_properties(${stand_ins} PROPERTIES COMPILE_OPTIONS -Wmissing-declarations)
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
  target_sources(tutti_comm PRIVATE ${TUTTI_COLLECTIVE_TABLE_SOURCE})
  target_compile_definitions(tutti_comm PRIVATE TUTTI_MPI_WHY_NOT="${mpi_why_not}" TUTTI_GLOO_WHY_NOT="${gloo_why_not}")
endfunction()
