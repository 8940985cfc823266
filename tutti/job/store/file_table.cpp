#include "tutti/job/store/file_table.h"

#include <algorithm>
#include <thread>

#include "tutti/job/store/store_rules.h"
#include "tutti/job/store/wire.h"

namespace tutti::comm {

WireWriter FileStore::Shared::change(Change kind) { return WireWriter(static_cast<uint8_t>(kind)); }

FileStore::Shared::Shared(std::string path, int64_t world_size, std::chrono::milliseconds timeout)
    : path_(std::move(path)), world_size_(world_size) {
  TUTTI_CHECK(!path_.empty(), "file store: the path is empty");
  TUTTI_CHECK(world_size >= 0, "file store: world size {}; it must be 0 or more", world_size);
  const StoreDeadline deadline(timeout);
  while (true) {
    log_ = std::make_unique<FileLog>(path_);
    const FileLog::Lock lock(*log_, deadline);
    // The last user of an earlier store may have deleted the file between open and lock.
    if (!log_->is_current()) continue;
    read_new();
    TUTTI_CHECK(world_size_ == 0 || joined_ < world_size_,
                "store at file://{}: {} have joined already and the world size is {}; the file is left from an earlier "
                "job, delete it",
                path_, joined_, world_size_);
    commit(change(Change::kJoin).finish());
    return;
  }
}

void FileStore::Shared::check_process() const {
  if (process_.is_in_child()) process_.check(fmt::format("the store at file://{}", path_));
}

FileStore::Shared::~Shared() {
  if (process_.is_in_child()) return;  // the parent goes on using it
  try {
    const FileLog::Lock lock(*log_, StoreDeadline(std::chrono::seconds(5)));
    read_new();
    commit(change(Change::kQuit).finish());
    if (world_size_ > 0 && joined_ >= world_size_ && joined_ == quit_) log_->remove();
  } catch (const std::exception&) {
    // The file is damaged, deleted or held by somebody who was stopped; then it stays as it is.
  }
}

void FileStore::Shared::read_new() {
  log_->read_new([this](uint8_t code, std::string_view body) { apply(code, body); });
}

void FileStore::Shared::commit(const std::string& frame) {
  apply(static_cast<uint8_t>(frame[5]), std::string_view(frame).substr(kWireHeaderBytes));
  try {
    log_->append(frame);
  } catch (...) {
    // The table is ahead of the file: read it anew.
    table_ = KeyTable();
    joined_ = quit_ = 0;
    log_->rewind();
    throw;
  }
}

void FileStore::Shared::apply(uint8_t code, std::string_view bytes) {
  ++changes_;
  WireReader body(bytes);
  switch (static_cast<Change>(code)) {
    case Change::kJoin:
      ++joined_;
      break;
    case Change::kQuit:
      ++quit_;
      break;
    case Change::kSet: {
      const std::string_view key = body.read_bytes();
      table_.set(key, body.read_bytes());
      break;
    }
    case Change::kAppend: {
      const std::string_view key = body.read_bytes();
      table_.append(key, body.read_bytes());
      break;
    }
    case Change::kDelete:
      table_.erase(body.read_bytes());
      break;
    case Change::kMultiSet: {
      const Keys keys = body.read_list();
      table_.set_all(keys, body.read_list());
      break;
    }
    case Change::kArrive: {
      const std::string_view key = body.read_bytes();
      last_round_ = table_.arrive(key, body.read_i64());
      break;
    }
    case Change::kLeave:
      table_.leave(body.read_bytes());
      break;
    default:
      throw WireError(fmt::format("store at file://{}: unknown change {}; was it written by a newer version?", path_,
                                  static_cast<int>(code)));
  }
}

std::shared_ptr<BarrierRound> FileStore::Shared::Access::arrive(std::string_view key, int64_t world_size) {
  commit(change(Change::kArrive).put_bytes(key).put_i64(world_size).finish());
  return std::move(shared_.last_round_);
}

bool FileStore::Shared::wait_for_change(uint64_t seen, const StoreDeadline& deadline) {
  for (auto pause = std::chrono::milliseconds(1);; pause = std::min(2 * pause, std::chrono::milliseconds(50))) {
    if (deadline.has_passed()) return false;
    std::this_thread::sleep_until(std::min(deadline.moment(), std::chrono::steady_clock::now() + pause));
    const std::lock_guard guard(mutex_);
    if (changes_ != seen || log_->has_more()) return true;
  }
}

}  // namespace tutti::comm
