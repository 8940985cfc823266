#include "tutti/train/checkpoint/checkpoint_tensors.h"

#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <deque>
#include <set>

#include "tutti/autograd/tape.h"
#include "tutti/core/hash.h"
#include "tutti/dist/dtensor.h"
#include "tutti/io/safetensors_parts.h"
#include "tutti/io/safetensors_shards.h"
#include "tutti/ops/copy.h"
#include "tutti/train/agreement.h"

namespace tutti::train {
namespace {

// What a rank has of a tensor: a box of it.
struct Box {
  Extents first;
  Tensor values;
};

Tensor narrowed(const Tensor& whole, const Extents& first, const Extents& sizes) {
  int64_t offset = whole.offset();
  for (int d = 0; d < sizes.ndim(); ++d)
    offset += first[static_cast<size_t>(d)] * whole.strides()[static_cast<size_t>(d)];
  return whole.view_as(sizes, whole.strides(), offset);
}

Box box_of(const Tensor& tensor) {
  Extents first = tensor.extents();
  std::fill(first.begin(), first.end(), 0);
  if (!dist::is_dtensor(tensor)) return {first, tensor};
  const dist::DTensorSpec& spec = dist::spec_of(tensor);
  for (int d = 0; d < first.ndim(); ++d) {
    const dist::IndexSet held = spec.indices(d, dist::mesh_of(tensor)->coordinate());
    TUTTI_CHECK(held.is_range() && !spec.has_partial(),
                "checkpoint: a rank has several ranges of {}; redistribute() it so that each has one",
                spec.to_string());
    first[static_cast<size_t>(d)] = held.ranges().empty() ? 0 : held.ranges()[0].begin;
  }
  return {first, dist::part_of(tensor, "checkpoint").local};
}

// What of it this rank writes: each element is written once.
Box written_box(const Tensor& tensor, comm::ProcessGroup* group) {
  Box box = box_of(tensor);
  if (group == nullptr || group->size() == 1) return box;
  Extents sizes = box.values.extents();
  int64_t share = group->rank(), shares = group->size();
  if (dist::is_dtensor(tensor)) {
    // Ranks that have the same part share it: they differ in the mesh dims that cut nothing.
    const dist::Mesh& mesh = dist::mesh_of(tensor);
    share = 0, shares = 1;
    for (int m = 0; m < mesh->ndim(); ++m) {
      if (!dist::placements_of(tensor)[static_cast<size_t>(m)].is_replicate()) continue;
      share = share * mesh->size(m) + mesh->coordinate()[static_cast<size_t>(m)];
      shares *= mesh->size(m);
    }
  }
  if (shares == 1) return box;
  if (sizes.ndim() == 0) {
    if (share > 0) box.values = {};
    return box;
  }
  const dist::Range rows = dist::cut_range(sizes[0], share, shares, dist::Cut::chunk);
  Extents offset = sizes;
  std::fill(offset.begin(), offset.end(), 0);
  offset[0] = rows.begin;
  sizes[0] = rows.size();
  box.values = narrowed(box.values, offset, sizes);
  box.first[0] += rows.begin;
  return box;
}

// What tells the file of a path from a copy of it on another host; 0: there is none.
uint64_t identity_of(const std::filesystem::path& path) {
  struct stat about = {};
  if (stat(path.c_str(), &about) != 0) return 0;
  const int64_t words[] = {static_cast<int64_t>(about.st_ino),
                           about.st_size,
                           about.st_mtim.tv_sec,
                           about.st_mtim.tv_nsec,
                           about.st_ctim.tv_sec,
                           about.st_ctim.tv_nsec};
  return hash64(words, sizeof words, 0) | 1;
}

// Whether every rank sees the same files under these paths: those of a host do, others may have file systems of their
// own.
bool all_see(const std::vector<std::filesystem::path>& paths, comm::ProcessGroup* group) {
  if (group == nullptr || group->size() == 1) return true;
  std::vector<int64_t> seen(paths.size());
  for (size_t i = 0; i < paths.size(); ++i) seen[i] = std::bit_cast<int64_t>(identity_of(safetensors_place(paths[i])));
  std::vector<int64_t> least = seen, most = seen;
  group->all_reduce_values<int64_t>(least, {comm::ReduceKind::min});
  group->all_reduce_values<int64_t>(most, {comm::ReduceKind::max});
  return least == most && std::find(least.begin(), least.end(), 0) == least.end();
}

Box written_box(const parallel::TensorBox& box) {
  if (box.values.defined() && !box.is_copy) return {box.first, box.values};
  Extents none = box.sizes;
  std::fill(none.begin(), none.end(), 0);
  return {none, Tensor::empty(none, box.dtype)};
}

// Rank 0 writes the parts of all ranks.
void send_to_first_rank(SafetensorsParts& file, const std::string& name, const Box& mine, comm::ProcessGroup& group) {
  const int64_t ndim = mine.first.ndim();
  // Where the part of each rank lies, and how large it is.
  std::vector<int64_t> boxes(static_cast<size_t>(group.size() * ndim * 2), 0);
  const size_t own = static_cast<size_t>(group.rank() * ndim * 2);
  for (size_t d = 0; d < static_cast<size_t>(ndim); ++d) {
    boxes[own + 2 * d] = mine.first[d];
    boxes[own + 2 * d + 1] = mine.values.extents()[d];
  }
  group.all_reduce_values<int64_t>(boxes);  // each place has one summand that is not 0
  std::vector<Extents> firsts;
  std::vector<Tensor> parts;
  for (size_t r = 0; r < static_cast<size_t>(group.size()); ++r) {
    Extents first = mine.first, sizes = mine.first;
    for (size_t d = 0; d < static_cast<size_t>(ndim); ++d) {
      first[d] = boxes[(r * static_cast<size_t>(ndim) + d) * 2];
      sizes[d] = boxes[(r * static_cast<size_t>(ndim) + d) * 2 + 1];
    }
    firsts.push_back(first);
    parts.push_back(Tensor::empty(sizes, mine.values.dtype()));
  }
  group.all_gather_v(parts, to_contiguous(mine.values));
  on_first_rank(&group, [&] {
    for (size_t r = 0; r < parts.size(); ++r) file.write(name, firsts[r], parts[r]);
  });
}

// Rank 0 writes the boxes of all ranks, one after another: they may be of a tensor that fits on no rank.
void send_to_first_rank(SafetensorsParts& file, const parallel::TensorBox& box, comm::ProcessGroup& group) {
  const Box mine = written_box(box);
  const size_t ndim = mine.first.size();
  std::vector<int64_t> boxes(static_cast<size_t>(group.size()) * ndim * 2, 0);
  for (size_t d = 0; d < ndim; ++d) {
    const size_t at = (static_cast<size_t>(group.rank()) * ndim + d) * 2;
    boxes[at] = mine.first[d];
    boxes[at + 1] = mine.values.extents()[d];
  }
  group.all_reduce_values<int64_t>(boxes);  // each place has one summand that is not 0
  for (int r = 1; r < group.size(); ++r) {
    Extents first = mine.first, sizes = mine.first;
    for (size_t d = 0; d < ndim; ++d) {
      first[d] = boxes[(static_cast<size_t>(r) * ndim + d) * 2];
      sizes[d] = boxes[(static_cast<size_t>(r) * ndim + d) * 2 + 1];
    }
    if (numel_of(sizes) == 0) continue;
    if (group.rank() == r) group.send(to_contiguous(mine.values), 0);
    Tensor part;
    if (group.rank() == 0) {
      part = Tensor::empty(sizes, box.dtype);
      group.recv(part, r);
    }
    on_first_rank(&group, [&] { file.write(box.name, first, part); });
  }
  on_first_rank(&group, [&] {
    if (mine.values.numel() > 0) file.write(box.name, mine.first, mine.values);
  });
}

struct FileTensor {
  const SafetensorsShards* file;
  const io::SafetensorsEntry* entry;
  int64_t first, blocks;  // of all blocks of all tensors
};

}  // namespace

NamedTensors tensors_of(const nn::Module& model) {
  NamedTensors list;
  for (const nn::NamedParameter& p : model.named_parameters()) {
    p.parameter.materialize();
    list.emplace_back(p.name, detach(p.parameter.master()));
  }
  for (const nn::NamedBuffer& b : model.named_buffers()) {
    if (b.persistent) list.emplace_back(b.name, b.buffer.use());
  }
  return list;
}

NamedTensors state_of(const optim::Optimizer& optimizer) {
  NamedTensors list;
  for (const optim::StateTensor& s : optimizer.state()) list.emplace_back(s.name, s.tensor);
  return list;
}

void write_tensors(const std::filesystem::path& path, const NamedTensors& tensors,
                   const std::map<std::string, std::string>& metadata, comm::ProcessGroup* group,
                   const TensorBoxes& boxes) {
  const NoGradScope no_grad;
  std::vector<io::SafetensorsEntry> entries;
  for (const auto& [name, tensor] : tensors)
    entries.push_back({.name = name, .dtype = tensor.dtype(), .shape = tensor.extents()});
  for (const parallel::TensorBox& box : boxes)
    entries.push_back({.name = box.name, .dtype = box.dtype, .shape = box.sizes});
  SafetensorsParts file(path.string(), std::move(entries), metadata);
  on_first_rank(group, [&] { file.create(); });
  const bool all_write = all_see({path}, group);
  on_all_ranks(group, [&] {
    for (const auto& [name, tensor] : tensors) {
      if (!all_write && dist::is_dtensor(tensor)) continue;
      const Box box = all_write ? written_box(tensor, group) : box_of(tensor);
      if (box.values.defined() && (all_write || is_first_rank(group))) file.write(name, box.first, box.values);
    }
    for (const parallel::TensorBox& given : boxes) {
      const Box box = written_box(given);
      if (all_write && box.values.numel() > 0) file.write(given.name, box.first, box.values);
    }
  });
  if (!all_write) {
    for (const auto& [name, tensor] : tensors) {
      if (dist::is_dtensor(tensor)) send_to_first_rank(file, name, box_of(tensor), *group);
    }
    for (const parallel::TensorBox& box : boxes) send_to_first_rank(file, box, *group);
  }
  on_all_ranks(group, [&] {
    if (all_write || is_first_rank(group)) file.sync();
  });
}

void read_tensors(const SafetensorsShards& file, const NamedTensors& tensors, const TensorBoxes& boxes) {
  const NoGradScope no_grad;
  for (const auto& [name, tensor] : tensors) {
    const Box box = box_of(tensor);
    copy_(box.values, narrowed(file.tensor(name), box.first, box.values.extents()));
  }
  for (const parallel::TensorBox& box : boxes)
    if (box.values.defined()) copy_(box.values, narrowed(file.tensor(box.name), box.first, box.values.extents()));
}

void check_content(const SafetensorsShards& file, const NamedTensors& tensors, const TensorBoxes& boxes) {
  std::string problems;
  std::set<std::string> known;
  const auto check = [&](const std::string& name, DType dtype, const Extents& sizes, const std::string& description) {
    known.insert(name);
    if (!file.contains(name)) {
      problems += fmt::format("\n  missing: {} {}", name, description);
      return;
    }
    const Tensor stored = file.tensor(name);
    if (stored.extents() != sizes || stored.dtype() != dtype)
      problems += fmt::format("\n  {}: the file holds {}, the model needs {}", name, describe(stored), description);
  };
  for (const auto& [name, tensor] : tensors) check(name, tensor.dtype(), tensor.extents(), describe(tensor));
  for (const parallel::TensorBox& box : boxes)
    check(box.name, box.dtype, box.sizes, fmt::format("{} {}", box.sizes, name_of(box.dtype)));
  for (const auto& entry : file.entries())
    if (!known.contains(entry.name)) problems += fmt::format("\n  unexpected: {}", entry.name);
  TUTTI_CHECK(problems.empty(), "{} is of another model:{}", file.path(), problems);
}

Digests digests_of_files(const std::vector<std::filesystem::path>& paths, comm::ProcessGroup* group) {
  const int64_t rank = group == nullptr ? 0 : group->rank(), ranks = group == nullptr ? 1 : group->size();
  std::deque<SafetensorsShards> files;
  std::vector<FileTensor> tensors;
  std::vector<int64_t> hashes;
  if (!all_see(paths, group)) {
    Digests digests;  // each rank reads all of the files that it has
    on_all_ranks(group, [&] {
      if (std::all_of(paths.begin(), paths.end(), [](const std::filesystem::path& path) {
            return std::filesystem::exists(safetensors_place(path));
          }))
        digests = digests_of_files(paths, nullptr);
    });
    return digests;
  }
  on_all_ranks(group, [&] {
    int64_t count = 0;
    for (const std::filesystem::path& path : paths) {
      for (const io::SafetensorsEntry& entry : files.emplace_back(path).entries()) {
        tensors.push_back({&files.back(), &entry, count, (numel_of(entry.shape) + kDigestBlock - 1) / kDigestBlock});
        count += tensors.back().blocks;
      }
    }
    hashes.assign(static_cast<size_t>(count), 0);
    const int64_t begin = count * rank / ranks, end = count * (rank + 1) / ranks;
    for (const FileTensor& t : tensors) {
      const int64_t from = std::max(begin - t.first, int64_t{0}), to = std::min(end - t.first, t.blocks);
      if (from >= to) continue;
      const Tensor values = t.file->tensor(t.entry->name);
      const int64_t numel = std::min(to * kDigestBlock, values.numel()) - from * kDigestBlock;
      const std::vector<uint64_t> mine =
          block_digests(values.view_as({numel}, {1}, values.offset() + from * kDigestBlock));
      for (size_t b = 0; b < mine.size(); ++b)
        hashes[static_cast<size_t>(t.first + from) + b] = std::bit_cast<int64_t>(mine[b]);
    }
  });
  if (ranks > 1) group->all_reduce_values<int64_t>(hashes);  // each place has one summand that is not 0
  Digests digests;
  for (const FileTensor& t : tensors) {
    std::vector<uint64_t> blocks;
    for (int64_t b = t.first; b < t.first + t.blocks; ++b)
      blocks.push_back(std::bit_cast<uint64_t>(hashes[static_cast<size_t>(b)]));
    digests[t.entry->name] = tensor_digest(t.entry->dtype, t.entry->shape, blocks);
  }
  return digests;
}

}  // namespace tutti::train
