#include "tutti/io/bpe_merger.h"

#include <queue>

namespace tutti::io {
namespace {

constexpr int32_t kNone = -1;

// A token in a doubly linked row; a merged right half keeps id kNone.
struct Link {
  int32_t id;
  int64_t previous;
  int64_t next;
};

struct Candidate {
  int32_t rank;
  int64_t position;
  int32_t left;
  int32_t right;
  int32_t result;
  bool operator>(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : position > other.position;
  }
};

}  // namespace

BpeMerger::BpeMerger(const ByteTokens& bytes, std::span<const BpeMerge> merges) : bytes_(bytes) {
  rules_.reserve(merges.size());
  int32_t rank = 0;
  for (const BpeMerge& merge : merges) rules_.emplace(pair_key(merge.left, merge.right), Rule{rank++, merge.result});
}

void BpeMerger::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  std::vector<int32_t> tokens;
  tokens.reserve(piece.size());
  bool was_unknown = false;
  for (const char byte : piece) {
    const int32_t token = bytes_.ids[static_cast<unsigned char>(byte)];
    const bool is_unknown = token == ByteTokens::kNoToken;
    if (is_unknown && (!bytes_.unknown || (was_unknown && bytes_.fuses_unknown))) continue;
    was_unknown = is_unknown;
    tokens.push_back(is_unknown ? *bytes_.unknown : token);
  }
  merge(tokens, ids);
}

void BpeMerger::merge(std::span<const int32_t> tokens, std::vector<int32_t>& ids) const {
  std::vector<Link> links;
  links.reserve(tokens.size());
  for (const int32_t token : tokens) {
    const int64_t i = static_cast<int64_t>(links.size());
    links.push_back({token, i - 1, i + 1});
  }
  const int64_t count = static_cast<int64_t>(links.size());
  if (count == 0) return;
  links.back().next = kNone;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto consider = [&](int64_t position) {
    if (position == kNone || links[position].next == kNone) return;
    const int32_t left = links[position].id;
    const int32_t right = links[links[position].next].id;
    const auto rule = rules_.find(pair_key(left, right));
    if (rule != rules_.end()) candidates.push({rule->second.rank, position, left, right, rule->second.result});
  };
  for (int64_t i = 0; i + 1 < count; ++i) consider(i);
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    Link& left = links[best.position];
    // A candidate is stale when one of its halves has been merged since.
    if (left.id != best.left || left.next == kNone || links[left.next].id != best.right) continue;
    Link& right = links[left.next];
    left.id = best.result;
    right.id = kNone;
    left.next = right.next;
    if (left.next != kNone) links[left.next].previous = best.position;
    consider(left.previous);
    consider(best.position);
  }
  for (int64_t i = 0; i != kNone; i = links[i].next) ids.push_back(links[i].id);
}

}  // namespace tutti::io
