# find_package(Tutti CONFIG) -> Tutti::tutti, which is all rooms. Headers keep their paths ("tutti/tensor/tensor.h").
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(rooms GLOBAL PROPERTY TUTTI_ROOMS)
add_library(tutti_all INTERFACE)
set_target_properties(tutti_all PROPERTIES EXPORT_NAME tutti)
set(targets tutti_all)
foreach(room IN LISTS rooms)
  target_link_libraries(tutti_all INTERFACE Tutti::${room})
  list(APPEND targets tutti_${room})
endforeach()
add_library(Tutti::tutti ALIAS tutti_all)

install(TARGETS ${targets} EXPORT TuttiTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
get_property(gemm_libraries GLOBAL PROPERTY TUTTI_GEMM_LIBRARIES)
install(TARGETS tutti_llvm ${gemm_libraries} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS tutti_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/tutti DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp"
        PATTERN "llvm" EXCLUDE PATTERN "ops/attention" EXCLUDE PATTERN "ops/grouped" EXCLUDE)
install(DIRECTORY ${PROJECT_BINARY_DIR}/generated/tutti DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(EXPORT TuttiTargets NAMESPACE Tutti:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Tutti)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/TuttiConfig.cmake.in ${PROJECT_BINARY_DIR}/TuttiConfig.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Tutti)
configure_file(${PROJECT_SOURCE_DIR}/cmake/Tutti_library.cmake.in ${PROJECT_BINARY_DIR}/Tutti_library.cmake @ONLY)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/TuttiConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/TuttiConfig.cmake ${PROJECT_BINARY_DIR}/Tutti_library.cmake ${PROJECT_BINARY_DIR}/TuttiConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Tutti)
