// The collectives of `tutti bench comm` in libgloo's own algorithms over TCP on loopback, timed the same way. Forks its
// ranks; roots go round. g++ -O3 -std=c++17 gloo_comm.cpp -lgloo -o gloo_comm && ./gloo_comm RANKS 8,1024,...
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

static void run(int rank, int ranks, const std::vector<long>& sizes, const std::string& folder) {
  gloo::transport::tcp::attr attr;
  attr.hostname = "127.0.0.1";
  gloo::rendezvous::FileStore store(folder);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  auto device = gloo::transport::tcp::CreateDevice(attr);
  context->connectFullMesh(store, device);
  for (const std::string op : {"all_reduce", "all_gather", "all_to_all", "broadcast", "barrier"}) {
    for (const long bytes : op == "barrier" ? std::vector<long>{0} : sizes) {
      const size_t count = std::max(1L, bytes / 4), each = std::max<size_t>(1, count / ranks);
      std::vector<float> in(each * ranks + count, 0.0f), out(in.size(), 0.0f);
      int root = 0;
      std::function<void()> call = [&] {
        gloo::BarrierOptions o(context);
        gloo::barrier(o);
      };
      if (op == "all_reduce")
        call = [&] {
          gloo::AllreduceOptions o(context);
          o.setOutput(out.data(), count);
          o.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
          gloo::allreduce(o);
        };
      if (op == "all_gather")
        call = [&] {
          gloo::AllgatherOptions o(context);
          o.setInput(in.data(), each);
          o.setOutput(out.data(), each * ranks);
          gloo::allgather(o);
        };
      if (op == "all_to_all")
        call = [&] {
          gloo::AlltoallOptions o(context);
          o.setInput(in.data(), each * ranks);
          o.setOutput(out.data(), each * ranks);
          gloo::alltoall(o);
        };
      if (op == "broadcast")
        call = [&] {
          gloo::BroadcastOptions o(context);
          o.setOutput(out.data(), count);
          o.setRoot(root);
          gloo::broadcast(o);
          root = (root + 1) % ranks;
        };
      const auto time_of = [&](long calls) {
        gloo::BarrierOptions barrier(context);
        gloo::barrier(barrier);
        const auto begin = std::chrono::steady_clock::now();
        for (long i = 0; i < calls; ++i) call();
        return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() /
               static_cast<double>(calls);
      };
      // All ranks make the same number of calls, whatever each has measured.
      const long calls = bytes <= 32768 ? 20 : bytes <= (1 << 20) ? 5 : 1;
      time_of(2);
      std::vector<double> times;
      for (int k = 0; k < 15; ++k) times.push_back(time_of(calls));
      std::sort(times.begin(), times.end());
      if (rank == 0) {
        std::printf(
            "{\"op\":\"%s\",\"bytes\":%ld,\"ranks\":%d,\"transport\":\"gloo\",\"min_us\":%.3f,\"median_us\":%.3f}\n",
            op.c_str(), bytes, ranks, times.front(), times[times.size() / 2]);
        std::fflush(stdout);
      }
    }
  }
}

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  std::vector<long> sizes;
  for (char* at = argv[2]; *at; at += *at == ',') sizes.push_back(std::strtol(at, &at, 10));
  std::string folder = (std::filesystem::temp_directory_path() / "gloo_comm_XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return 1;
  for (int r = 1; r < ranks; ++r) {
    if (fork() == 0) {
      run(r, ranks, sizes, folder);
      _exit(0);
    }
  }
  run(0, ranks, sizes, folder);
  while (wait(nullptr) > 0) {
  }
  std::filesystem::remove_all(folder);
  return 0;
}
