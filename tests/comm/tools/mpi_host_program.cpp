// A program that uses MPI itself, and Tutti over the same MPI. Run by mpirun.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstdio>
#include <string_view>

#include "tests/comm/support/transport_ranks.h"
#include "tutti/comm/transports.h"
#include "tutti/core/error.h"

int main(int argc, char** argv) {
  using namespace tutti::comm;
  const bool multiple = argc < 2 || std::string_view(argv[1]) != "single";
  int level = 0, rank = 0, size = 0, finalized = 0;
  MPI_Init_thread(&argc, &argv, multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int code = 0;
  try {
    GroupSeat seat;
    seat.name = seat.key = "host";
    seat.rank = rank;
    seat.size = size;
    seat.deadline = Clock::now() + std::chrono::seconds(30);
    const auto t = make_transport("mpi", seat);
    check_rounds(*t, 9, 10, 500'000);
    // The program's own messages are not taken by Tutti.
    int token = rank;
    MPI_Sendrecv_replace(&token, 1, MPI_INT, (rank + 1) % size, 0, (rank + size - 1) % size, MPI_ANY_TAG,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (token != (rank + size - 1) % size) throw std::runtime_error("the program's own message was lost");
  } catch (const std::exception& error) {
    std::printf("rank %d: %s\n", rank, error.what());
    code = multiple ? 1 : 0;
  }
  MPI_Finalized(&finalized);
  if (finalized) return 2;
  MPI_Finalize();
  return code;
}
