// The collectives of `tutti bench comm` on an MPI, timed the same way: samples of about a millisecond between barriers,
// on rank 0. Roots go round, so that none is calls ahead of its peers. Prints one JSON object per line, the first with
// the library's version.  mpicxx -O3 mpi_comm.cpp -o mpi_comm && mpirun -n 2 ./mpi_comm NAME 8,1024,...
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(version, &length);
  if (rank == 0) std::printf("{\"version\":\"%.*s\"}\n", static_cast<int>(std::strcspn(version, ",\n\"")), version);
  std::vector<long> sizes;
  for (char* at = argv[2]; *at; at += *at == ',') sizes.push_back(std::strtol(at, &at, 10));
  for (const std::string op : {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "barrier"}) {
    for (const long bytes : op == "barrier" ? std::vector<long>{0} : sizes) {
      const int count = static_cast<int>(std::max(1L, bytes / 4)), each = std::max(1, count / ranks);
      std::vector<float> in(static_cast<size_t>(each) * ranks + count, 0.0f), out(in.size(), 0.0f);
      int root = 0;
      std::function<void()> call = [] { MPI_Barrier(MPI_COMM_WORLD); };
      if (op == "all_reduce")
        call = [&] { MPI_Allreduce(MPI_IN_PLACE, out.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); };
      if (op == "all_gather")
        call = [&] { MPI_Allgather(in.data(), each, MPI_FLOAT, out.data(), each, MPI_FLOAT, MPI_COMM_WORLD); };
      if (op == "reduce_scatter")
        call = [&] { MPI_Reduce_scatter_block(in.data(), out.data(), each, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); };
      if (op == "all_to_all")
        call = [&] { MPI_Alltoall(in.data(), each, MPI_FLOAT, out.data(), each, MPI_FLOAT, MPI_COMM_WORLD); };
      if (op == "broadcast")
        call = [&] {
          MPI_Bcast(out.data(), count, MPI_FLOAT, root, MPI_COMM_WORLD);
          root = (root + 1) % ranks;
        };
      const auto time_of = [&](long calls) {
        MPI_Barrier(MPI_COMM_WORLD);
        const double begin = MPI_Wtime();
        for (long i = 0; i < calls; ++i) call();
        return (MPI_Wtime() - begin) * 1e6 / static_cast<double>(calls);
      };
      time_of(2);
      double once = time_of(10);
      MPI_Allreduce(MPI_IN_PLACE, &once, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      const long calls = std::clamp(static_cast<long>(1000.0 / once), 1L, 2000L);
      const int samples = static_cast<int>(std::clamp(400'000.0 / (once * static_cast<double>(calls)), 9.0, 200.0));
      std::vector<double> times;
      for (int k = 0; k < samples; ++k) times.push_back(time_of(calls));
      std::sort(times.begin(), times.end());
      if (rank == 0) {
        std::printf(
            "{\"op\":\"%s\",\"bytes\":%ld,\"ranks\":%d,\"transport\":\"%s\",\"min_us\":%.3f,\"median_us\":%.3f}\n",
            op.c_str(), bytes, ranks, argv[1], times.front(), times[times.size() / 2]);
        std::fflush(stdout);
      }
    }
  }
  MPI_Finalize();
}
