// [runtime]: the keys with their defaults.
#include "tutti/train/config/section.h"

namespace tutti::train {
namespace {

std::vector<Field> runtime_keys() {
  return {
      {TUTTI_KEY(runtime, int64_t, threads, -1), .doc = "threads per rank; -1: cores divided by local ranks",
       .unit = "threads", .rule = {.min = 1, .max = 1024, .also = -1}},
      {TUTTI_KEY(runtime, bool, progress_thread, false),
       .doc = "whether a thread of its own moves what ranks send each other while they compute; it pays where a core "
              "is free. The numbers are the same",
       .unit = ""},
      {TUTTI_KEY(runtime, std::string, transport, "auto"),
       .doc = "how ranks exchange data; auto: shared memory inside a host, TCP between hosts; threads: the ranks of -n "
              "are threads of one process",
       .unit = "", .rule = one_of({"auto", "shm", "gloo", "mpi", "hier", "threads"})},
  };
}

}  // namespace

TUTTI_SECTION(runtime, RuntimeConfig, 4) = {
    .name = "runtime",
    .doc = "Threads and communication.",
    .keys = runtime_keys,
};

}  // namespace tutti::train
