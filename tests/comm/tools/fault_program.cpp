// One rank of a scenario of faults, for tests that start several:
//   fault_program TRANSPORT SCENARIO ARGUMENT FOLDER PORT RANK    mpirun tells its ranks their numbers
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "tests/comm/support/fault_ranks.h"

int main(int argc, char** argv) {
  const char* number = argc > 6                              ? argv[6]
                       : std::getenv("OMPI_COMM_WORLD_RANK") ? std::getenv("OMPI_COMM_WORLD_RANK")
                                                             : std::getenv("PMI_RANK");
  if (argc < 6 || number == nullptr) return 2;
  try {
    tutti::comm::play_as_process(argv[1], argv[2], argv[3], argv[4], std::atoi(argv[5]), std::atoi(number));
    return 0;
  } catch (const std::exception& error) {
    std::printf("failed: %s\n", error.what());
    return 1;
  }
}
