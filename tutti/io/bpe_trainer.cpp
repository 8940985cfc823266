#include "tutti/io/bpe_trainer.h"

#include <algorithm>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "tutti/core/error.h"
#include "tutti/core/hash.h"
#include "tutti/io/byte_alphabet.h"
#include "tutti/io/regex_split.h"

namespace tutti {
namespace {

constexpr size_t kStretchNbytes = 64 << 10;

struct Word {
  std::vector<int32_t> tokens;
  int64_t count;
};

using WordCounts = std::unordered_map<std::string, int64_t, StringHash, std::equal_to<>>;

int64_t total_nbytes(std::span<const std::string> documents) {
  int64_t nbytes = 0;
  for (const std::string& document : documents) nbytes += static_cast<int64_t>(document.size());
  return nbytes;
}

// Pieces of the sampled stretches with their counts, sorted by bytes: the order in which words are met has no
// influence.
std::vector<std::pair<std::string, int64_t>> count_pieces(std::span<const std::string> documents,
                                                          int64_t sample_nbytes) {
  const io::RegexSplitter splitter(io::kQwenSplitPattern);
  const double share = std::min(1.0, static_cast<double>(sample_nbytes) / static_cast<double>(total_nbytes(documents)));
  WordCounts counts;
  std::vector<size_t> ends;
  double seen = 0;
  double taken = 0;
  for (const std::string& document : documents) {
    for (std::string_view rest = document; !rest.empty(); rest.remove_prefix(std::min(kStretchNbytes, rest.size()))) {
      const std::string_view stretch = rest.substr(0, kStretchNbytes);
      const bool take = taken <= seen * share;
      seen += static_cast<double>(stretch.size());
      if (!take) continue;
      taken += static_cast<double>(stretch.size());
      ends.clear();
      splitter.split(stretch, 0, ends);
      size_t begin = 0;
      for (const size_t end : ends) {
        const std::string_view piece = stretch.substr(begin, end - begin);
        const auto known = counts.find(piece);
        if (known != counts.end()) {
          ++known->second;
        } else {
          counts.emplace(piece, 1);
        }
        begin = end;
      }
    }
  }
  std::vector<std::pair<std::string, int64_t>> sorted(counts.begin(), counts.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

struct Candidate {
  int64_t count;
  uint64_t pair;
  // A max-heap: the larger count first, of equals the smaller pair.
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

// Counts of all neighbouring pairs, kept up to date while words are rewritten.
class PairTable {
 public:
  explicit PairTable(std::vector<Word> words) : words_(std::move(words)) {
    for (int64_t w = 0; w < static_cast<int64_t>(words_.size()); ++w) {
      const std::vector<int32_t>& tokens = words_[static_cast<size_t>(w)].tokens;
      for (size_t i = 0; i + 1 < tokens.size(); ++i) add(tokens[i], tokens[i + 1], w);
    }
    for (const auto& [pair, state] : pairs_) heap_.push({state.count, pair});
    changed_.clear();
  }

  // The next pair to merge; false when none occurs `min_count` times.
  bool best(int64_t min_count, int32_t& left, int32_t& right) {
    while (!heap_.empty()) {
      const Candidate top = heap_.top();
      const int64_t now = pairs_[top.pair].count;
      if (now == top.count) {
        left = static_cast<int32_t>(top.pair >> 32);
        right = static_cast<int32_t>(top.pair & 0xffffffff);
        return now >= min_count;
      }
      heap_.pop();  // the count has changed since; growth was pushed anew, a loss is pushed here
      if (now < top.count && now > 0) heap_.push({now, top.pair});
    }
    return false;
  }

  // Every occurrence of (left, right), from the left, becomes `result`.
  void merge(int32_t left, int32_t right, int32_t result) {
    const std::vector<int64_t> touched = std::move(pairs_[io::pair_key(left, right)].words);
    int64_t last = -1;
    for (const int64_t w : touched) {
      if (w == last) continue;  // neighbours in the list may repeat a word
      last = w;
      rewrite(w, left, right, result);
    }
    pairs_.erase(io::pair_key(left, right));
    for (const uint64_t pair : changed_) {
      const auto found = pairs_.find(pair);
      if (found != pairs_.end() && found->second.count > 0) heap_.push({found->second.count, pair});
    }
    changed_.clear();
  }

 private:
  struct State {
    int64_t count = 0;
    std::vector<int64_t> words;  // where it has been seen; may name words that have lost it since
  };

  void add(int32_t left, int32_t right, int64_t w) {
    const uint64_t pair = io::pair_key(left, right);
    State& state = pairs_[pair];
    state.count += words_[static_cast<size_t>(w)].count;
    if (state.words.empty() || state.words.back() != w) state.words.push_back(w);
    changed_.insert(pair);
  }

  void remove(int32_t left, int32_t right, int64_t w) {
    pairs_[io::pair_key(left, right)].count -= words_[static_cast<size_t>(w)].count;
  }

  void rewrite(int64_t w, int32_t left, int32_t right, int32_t result) {
    std::vector<int32_t>& tokens = words_[static_cast<size_t>(w)].tokens;
    const auto is_here = [&](size_t i) { return i + 1 < tokens.size() && tokens[i] == left && tokens[i + 1] == right; };
    size_t first = 0;
    while (first < tokens.size() && !is_here(first)) ++first;
    if (first == tokens.size()) return;
    for (size_t i = 0; i + 1 < tokens.size(); ++i) remove(tokens[i], tokens[i + 1], w);
    size_t kept = first;
    for (size_t i = first; i < tokens.size(); ++kept) {
      if (is_here(i)) {
        tokens[kept] = result;
        i += 2;
      } else {
        tokens[kept] = tokens[i++];
      }
    }
    tokens.resize(kept);
    for (size_t i = 0; i + 1 < tokens.size(); ++i) add(tokens[i], tokens[i + 1], w);
  }

  std::vector<Word> words_;
  std::unordered_map<uint64_t, State, io::PairKeyHash> pairs_;
  std::unordered_set<uint64_t, io::PairKeyHash> changed_;  // since the last push to the heap
  std::priority_queue<Candidate> heap_;
};

}  // namespace

BpeModel train_bpe(std::span<const std::string> documents, const BpeTrainerOptions& options) {
  TUTTI_CHECK(options.vocab_size >= 257 && options.vocab_size <= (1 << 22),
              "vocab_size is {}; expected 257 (the bytes and EOS) to {}", options.vocab_size, 1 << 22);
  TUTTI_CHECK(options.min_count >= 1 && options.sample_nbytes >= 1,
              "min_count is {} and sample_nbytes {}; expected >= 1", options.min_count, options.sample_nbytes);
  TUTTI_CHECK(!options.eos_token.empty(), "eos_token is empty; documents need an end marker");
  TUTTI_CHECK(total_nbytes(documents) > 0, "there is no text to learn a vocabulary from");
  BpeModel model;
  for (const uint8_t byte : io::byte_alphabet_order()) {
    model.bytes.ids[byte] = static_cast<int32_t>(model.vocab.size());
    model.vocab.push_back(std::string(1, static_cast<char>(byte)));
  }
  std::vector<Word> words;
  for (const auto& [piece, count] : count_pieces(documents, options.sample_nbytes)) {
    Word word{{}, count};
    for (const char byte : piece) word.tokens.push_back(model.bytes.ids[static_cast<unsigned char>(byte)]);
    words.push_back(std::move(word));
  }
  PairTable table(std::move(words));
  int32_t left = 0, right = 0;
  // The same bytes can arise from two different pairs; a token stands once, so such a merge leads to the token there
  // is.
  std::unordered_map<std::string, int32_t> ids;
  for (size_t id = 0; id < model.vocab.size(); ++id) ids.emplace(*model.vocab[id], static_cast<int32_t>(id));
  while (static_cast<int64_t>(model.vocab.size()) + 1 < options.vocab_size &&
         table.best(options.min_count, left, right)) {
    const std::string bytes = *model.vocab[static_cast<size_t>(left)] + *model.vocab[static_cast<size_t>(right)];
    const auto [found, is_new] = ids.emplace(bytes, static_cast<int32_t>(model.vocab.size()));
    if (is_new) model.vocab.push_back(bytes);
    model.merges.push_back({left, right, found->second});
    table.merge(left, right, found->second);
  }
  const int32_t eos = static_cast<int32_t>(model.vocab.size());
  TUTTI_CHECK(!ids.contains(options.eos_token), "eos_token '{}' became a token of the text; choose another",
              options.eos_token);
  model.added_tokens.push_back({eos, options.eos_token, true});
  model.eos_id = eos;
  model.split_patterns = {io::kQwenSplitPattern};
  return model;
}

}  // namespace tutti
