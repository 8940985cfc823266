// The bytes that TcpStore and TcpStoreServer exchange.
//
// A frame is a header of 8 bytes (u32 size of the body, u8 version, u8 code, u16 zero) and the body. The code of a
// request is its WireOp, that of a reply its WireStatus; a client sends its next request after the reply. Numbers are
// little endian; bytes are a u32 count and the bytes; a list is a u32 count and its items. Every count is compared with
// what is there before anything is allocated. A connection begins with kHello: client's nonce and whether it has a key;
// the reply is the server's nonce and whether it has one. If so, kProof follows: the client's proof, and the server's
// in the reply.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/job/store/store.h"

namespace tutti::comm {

constexpr uint8_t kWireVersion = 1;
constexpr size_t kWireHeaderBytes = 8;
// The largest body: two values and some keys.
constexpr size_t kMaxWireBody = 2 * kMaxStoreValueBytes + (size_t{1} << 20);
// The largest body before both sides have proved who they are.
constexpr size_t kMaxWireGreeting = 64;

enum class WireOp : uint8_t {
  kHello = 1,
  kProof,
  kSet,
  kGet,  // get, wait and multi_get
  kAdd,
  kCompareSet,
  kDelete,
  kCheck,
  kCount,
  kAppend,
  kMultiSet,
  kList,
  kQueuePush,
  kQueuePop,
  kQueueLen,
  kBarrier,
};

enum class WireStatus : uint8_t {
  kOk = 0,
  kUsageError,        // text
  kEnvironmentError,  // text
  kTimeout,           // what is missing: a list of keys, or the number of callers that came to a barrier
  kRefused,           // text; the connection ends
};

// Bytes that are no frame, or a body that does not hold what its code asks for.
class WireError : public EnvironmentError {
 public:
  using EnvironmentError::EnvironmentError;
};

struct WireHeader {
  uint32_t body_bytes = 0;
  uint8_t version = 0;
  uint8_t code = 0;
  uint16_t reserved = 0;
};

// `bytes` has at least kWireHeaderBytes.
WireHeader read_wire_header(std::string_view bytes);

// Builds a frame; the header is filled in by finish().
class WireWriter {
 public:
  explicit WireWriter(WireOp op) : WireWriter(static_cast<uint8_t>(op)) {}
  explicit WireWriter(WireStatus status) : WireWriter(static_cast<uint8_t>(status)) {}
  explicit WireWriter(uint8_t code);
  WireWriter& put_u8(uint8_t value);
  WireWriter& put_i64(int64_t value);
  WireWriter& put_bytes(std::string_view bytes);
  WireWriter& put_list(const std::vector<std::string>& items);
  // UsageError when the body would be larger than kMaxWireBody.
  std::string finish();

 private:
  std::string frame_;
};

// Reads a body; WireError when it ends too early or has bytes left at the end.
class WireReader {
 public:
  explicit WireReader(std::string_view body) : rest_(body) {}
  uint8_t read_u8();
  int64_t read_i64();
  std::string_view read_bytes();  // a part of the body
  // UsageError when it has more than `most` items, before anything is allocated for them.
  std::vector<std::string> read_list(size_t most = kMaxWireBody);
  void expect_end() const;

 private:
  std::string_view take(size_t count);
  uint32_t read_u32();
  std::string_view rest_;
};

}  // namespace tutti::comm
