#include "tests/io/support/sample_text.h"

namespace tutti::testing {

std::vector<std::string> sample_documents(int64_t count, uint32_t seed) {
  static const char* const kWords[] = {"the",  "lark",  "sings", "above", "a",     "field",   "of",   "barley", "and",
                                       "wind", "moves", "its",   "grey",  "water", "slowly",  "then", "rests",  "under",
                                       "old",  "trees", "while", "night", "comes", "quietly", "over", "hills"};
  std::mt19937 random(seed);
  std::vector<std::string> documents;
  for (int64_t i = 0; i < count; ++i) {
    std::string text;
    const uint32_t words = 5 + random() % 40;
    for (uint32_t w = 0; w < words; ++w) {
      text += kWords[random() % std::size(kWords)];
      text += random() % 9 == 0 ? ".\n" : " ";
    }
    documents.push_back(text);
  }
  return documents;
}

std::string random_bytes(std::mt19937& random, size_t nbytes) {
  std::string bytes(nbytes, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

std::string mutated(std::string bytes, std::mt19937& random) {
  static const char kTelling[] = "{}[]\",:\\0-9eE.\x00\xff\x80 \n";
  for (uint32_t edits = 1 + random() % 4; edits > 0 && !bytes.empty(); --edits) {
    const size_t at = random() % bytes.size();
    switch (random() % 5) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
        break;
      case 1:
        bytes.erase(at, 1 + random() % 8);
        break;
      case 2:
        bytes.insert(at, bytes.substr(at, 1 + random() % 8));
        break;
      case 3:
        bytes[at] = kTelling[random() % (sizeof(kTelling) - 1)];
        break;
      default:
        if (random() % 4 == 0) bytes.resize(at);
    }
  }
  return bytes;
}

}  // namespace tutti::testing
