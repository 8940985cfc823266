// Collectives over strings of bytes of any size: the sizes go first, then the bytes. Nothing is decoded.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "tutti/comm/call_checks.h"
#include "tutti/comm/collective_def.h"
#include "tutti/comm/process_group.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

// A peer's size is not believed blindly: more than this in one call is an error instead of an allocation.
constexpr int64_t kMaxBytes = int64_t{1} << 36;

Tensor view_of(const std::string& bytes) {
  return Tensor::from_memory(const_cast<char*>(bytes.data()), {static_cast<int64_t>(bytes.size())}, DType::u8, {});
}

// In front of a byte string that is sent: a receiver that expects a tensor, or gets one, notices by length or mark.
constexpr int64_t kBytesMark = 0x7365747962;

// One 0 per rank: what stays where a transport moves no data.
Tensor no_sizes(int ranks) { return Tensor::of<int64_t>(std::vector<int64_t>(static_cast<size_t>(ranks), 0)); }
Tensor size_tensor(int64_t size) { return Tensor::of<int64_t>({size}); }

int64_t checked_size(const char* op, int64_t size, int from) {
  TUTTI_CHECK_ENV(size >= 0 && size <= kMaxBytes, "{}: rank {} announces {} bytes; at most {} are taken", op, from,
                  size, kMaxBytes);
  return size;
}

}  // namespace

std::string ProcessGroup::broadcast_bytes(const std::string& bytes, int root) {
  const Tensor size = size_tensor(static_cast<int64_t>(bytes.size()));
  broadcast(size, root);
  std::string result =
      rank_ == root ? bytes
                    : std::string(static_cast<size_t>(checked_size("broadcast_bytes", size.item_int(), root)), '\0');
  broadcast(view_of(result), root);
  return result;
}

std::vector<std::string> ProcessGroup::all_gather_bytes(const std::string& bytes) {
  const Tensor sizes = no_sizes(size());
  all_gather_single(sizes, size_tensor(static_cast<int64_t>(bytes.size())));
  std::vector<std::string> result;
  std::vector<Tensor> outputs;
  for (int p = 0; p < size(); ++p) {
    result.emplace_back(static_cast<size_t>(checked_size("all_gather_bytes", sizes.data<int64_t>()[p], p)), '\0');
  }
  for (const std::string& part : result) outputs.push_back(view_of(part));
  all_gather(outputs, view_of(bytes));
  return result;
}

std::vector<std::string> ProcessGroup::gather_bytes(const std::string& bytes, int root) {
  checked(CollectiveKind::gather_bytes, [&] { checks::root("gather_bytes", root, size()); });
  const Tensor sizes = no_sizes(size());
  all_gather_single(sizes, size_tensor(static_cast<int64_t>(bytes.size())));
  // Every rank knows all sizes, so an all_to_all with one non-empty column is a gather of uneven parts.
  std::vector<int64_t> offers(static_cast<size_t>(size()), 0), takes(static_cast<size_t>(size()), 0);
  offers[static_cast<size_t>(root)] = static_cast<int64_t>(bytes.size());
  if (rank_ == root) {
    for (int p = 0; p < size(); ++p)
      takes[static_cast<size_t>(p)] = checked_size("gather_bytes", sizes.data<int64_t>()[p], p);
  }
  const Tensor all = Tensor::empty({std::accumulate(takes.begin(), takes.end(), int64_t{0})}, DType::u8);
  all_to_all_v_single(all, view_of(bytes), takes, offers);
  std::vector<std::string> result;
  const char* at = reinterpret_cast<const char*>(all.data<uint8_t>());
  for (const int64_t take : takes) {
    if (rank_ == root) result.emplace_back(at, static_cast<size_t>(take));
    at += take;
  }
  return result;
}

std::string ProcessGroup::scatter_bytes(const std::vector<std::string>& parts, int root) {
  // A root that gives another number of parts tells everybody in the place of their sizes, so that no rank is left in
  // the call.
  const bool fits = rank_ != root || parts.size() == static_cast<size_t>(size());
  std::vector<int64_t> offers(static_cast<size_t>(size()), 0), takes(static_cast<size_t>(size()), 0);
  std::string all;
  std::vector<Tensor> sizes;
  if (!fits) {
    for (int p = 0; p < size(); ++p) sizes.push_back(size_tensor(-1 - static_cast<int64_t>(parts.size())));
  } else if (rank_ == root) {
    for (size_t p = 0; p < parts.size(); ++p) {
      offers[p] = static_cast<int64_t>(parts[p].size());
      sizes.push_back(size_tensor(offers[p]));
      all += parts[p];
    }
  }
  const Tensor own = size_tensor(0);
  scatter(own, sizes, root);
  TUTTI_CHECK(own.item_int() >= 0,
              "scatter_bytes: rank {} gives {} part{} for a group of {} ranks; expected one for each", root,
              -1 - own.item_int(), own.item_int() == -2 ? "" : "s", size());
  takes[static_cast<size_t>(root)] = checked_size("scatter_bytes", own.item_int(), root);
  std::string result(static_cast<size_t>(own.item_int()), '\0');
  all_to_all_v_single(view_of(result), view_of(all), takes, offers);
  return result;
}

void ProcessGroup::send_bytes(const std::string& bytes, int peer, uint32_t tag) {
  send(Tensor::of<int64_t>({kBytesMark, static_cast<int64_t>(bytes.size())}), peer, tag);
  send(view_of(bytes), peer, tag);
}

std::string ProcessGroup::recv_bytes(int peer, uint32_t tag) {
  const Tensor front = Tensor::of<int64_t>({0, 0});
  recv(front, peer, tag);
  const int64_t* said = front.data<int64_t>();
  TUTTI_CHECK(said[0] == kBytesMark,
              "recv_bytes with tag {}: rank {} has sent a tensor i64 [2] instead of a byte string", tag, peer);
  std::string result(static_cast<size_t>(checked_size("recv_bytes", said[1], peer)), '\0');
  recv(view_of(result), peer, tag);
  return result;
}

}  // namespace tutti::comm

// The sizes go first, then the bytes.
TUTTI_COLLECTIVE(broadcast_bytes){
    .name = "broadcast_bytes", .is_rooted = true, .evenness = Evenness::pairwise, .made_of = {"broadcast"}};
TUTTI_COLLECTIVE(all_gather_bytes){
    .name = "all_gather_bytes", .evenness = Evenness::pairwise, .made_of = {"all_gather_single", "all_gather"}};
TUTTI_COLLECTIVE(gather_bytes){.name = "gather_bytes",
                               .is_rooted = true,
                               .evenness = Evenness::pairwise,
                               .made_of = {"all_gather_single", "all_to_all_v_single"}};
TUTTI_COLLECTIVE(scatter_bytes){.name = "scatter_bytes",
                                .is_rooted = true,
                                .evenness = Evenness::pairwise,
                                .made_of = {"scatter", "all_to_all_v_single"}};
