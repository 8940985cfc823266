# The fingerprint of the code generator: a hash of all that decides which machine code it makes. Programs carry it, so
# that they find the kernels that their generator has made without looking for its library, and the library carries it,
# so that programs refuse that of another build. Equal sources, compilers and LLVMs have equal fingerprints in any
# checkout. What is hashed are the generator's sources, every file of the tree that they include, directly or not, and,
# for each such header, the source of the same name among those that are linked to them.
#
# The build runs this file as a script when one of them has changed.
cmake_minimum_required(VERSION 3.25)

# Sets `out` to `files`, all that they include and what of `linked` belongs to it, as sorted paths below `root`.
function(tutti_include_closure out root files linked)
  set(waiting ${files})
  set(reached ${files})
  while(waiting)
    list(POP_FRONT waiting file)
    file(STRINGS ${root}/${file} lines REGEX "^[ \t]*#[ \t]*include[ \t]*\"")
    foreach(line IN LISTS lines)
      string(REGEX MATCH "\"([^\"]*)\"" quoted "${line}")
      set(header ${CMAKE_MATCH_1})
      if(NOT EXISTS ${root}/${header})
        message(FATAL_ERROR "${root}/${file} includes \"${header}\", which is no file below ${root}: the code generator may include files "
                            "of the source tree and, in angle brackets, those of other libraries, for they decide whether kernels that are kept on disk are up to date")
      endif()
      string(REGEX REPLACE "\\.h$" ".cpp" source ${header})
      foreach(found IN ITEMS ${header} ${source})
        if(NOT found IN_LIST reached AND (found STREQUAL header OR found IN_LIST linked))
          list(APPEND reached ${found})
          list(APPEND waiting ${found})
        endif()
      endforeach()
    endforeach()
  endwhile()
  list(SORT reached)
  set(${out} ${reached} PARENT_SCOPE)
endfunction()

# Writes `output`, which defines generator_fingerprint() and generator_sources() (tutti/codegen/generator_fingerprint.h, generator_sources.h), and `output`.d, which
# names for the build the files that were read.
function(tutti_write_generator_fingerprint root tools output sources linked)
  tutti_include_closure(files ${root} "${sources}" "${linked}")
  set(text "")
  set(read "")
  foreach(file IN LISTS files)
    file(SHA256 ${root}/${file} digest)
    string(APPEND text "${file} ${digest}\n")
    string(REPLACE " " "\\ " escaped "${root}/${file}")
    string(APPEND read " \\\n  ${escaped}")
  endforeach()
  string(SHA256 fingerprint "${tools}\n${text}")
  string(SHA256 of_sources "${text}")
  string(SUBSTRING ${fingerprint} 0 16 fingerprint)
  string(SUBSTRING ${of_sources} 0 16 of_sources)
  file(WRITE ${output} "// Generated from the sources of the code generator.\n#include \"tutti/codegen/generator_fingerprint.h\"\n#include \"tutti/codegen/generator_sources.h\"\n\nnamespace tutti::codegen {\n\nuint64_t generator_fingerprint() { return 0x${fingerprint}; }\nuint64_t generator_sources() { return 0x${of_sources}; }\n\n}  // namespace tutti::codegen\n")
  string(REPLACE " " "\\ " escaped "${output}")
  file(WRITE ${output}.d "${escaped}:${read}\n")
endfunction()

# tutti_generator_fingerprint(<variable> SOURCES <source>... LINKED <source>...)
# Sets the variable to the source that defines generator_fingerprint(), of a generator that has SOURCES and is linked
# with LINKED. The build keeps it up to date.
function(tutti_generator_fingerprint out)
  cmake_parse_arguments(GENERATOR "" "" "SOURCES;LINKED" ${ARGN})
  foreach(list IN ITEMS SOURCES LINKED)
    set(${list} "")
    foreach(source IN LISTS GENERATOR_${list})
      cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
      cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
      list(APPEND ${list} ${source})
    endforeach()
  endforeach()
  set(file ${PROJECT_BINARY_DIR}/generated/tutti/codegen/generator_fingerprint.cpp)
  set(script ${PROJECT_SOURCE_DIR}/cmake/TuttiGeneratorFingerprint.cmake)
  set(tools "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}, LLVM ${LLVM_PACKAGE_VERSION}")
  if(NOT EXISTS ${file})  # tools that read the compile commands of a configured build find all of its sources
    tutti_write_generator_fingerprint(${PROJECT_SOURCE_DIR} "${tools}" ${file} "${SOURCES}" "${LINKED}")
  endif()
  list(TRANSFORM SOURCES PREPEND ${PROJECT_SOURCE_DIR}/ OUTPUT_VARIABLE paths)
  add_custom_command(
    OUTPUT ${file}
    COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR} "-DTOOLS=${tools}"
            -DOUTPUT=${file} "-DSOURCES=${SOURCES}" "-DLINKED=${LINKED}" -P ${script}
    DEPENDS ${paths} ${script}
    DEPFILE ${file}.d
    COMMENT "Hashing the sources of the code generator"
    VERBATIM)
  set(${out} ${file} PARENT_SCOPE)
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  tutti_write_generator_fingerprint("${ROOT}" "${TOOLS}" "${OUTPUT}" "${SOURCES}" "${LINKED}")
endif()
