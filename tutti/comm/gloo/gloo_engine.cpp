#include "tutti/comm/gloo/gloo_engine.h"

#include <unistd.h>

#include <cstdlib>
#include <mutex>
#include <set>

#include "tutti/comm/gloo/gloo_connections.h"

namespace tutti::comm {
namespace {

// How long one that leaves waits until the others' listeners have all that it sent. It takes them no longer than to
// read it, whatever their programs do.
constexpr std::chrono::seconds kStay{1};

// Closing a connection drops what the peer has not read yet, so the connections of a rank that has left stay here until
// its peers, stopped or out of reach for the moment, have heard all. The system closes the rest when the process ends.
// Any thread.
class Parked {
 public:
  void add(std::unique_ptr<GlooConnections> connections) {
    const std::lock_guard lock(mutex_);
    parked_.push_back(std::move(connections));
  }
  // Closes those that are no longer needed.
  void sweep() {
    const std::lock_guard lock(mutex_);
    std::erase_if(parked_, [](const std::unique_ptr<GlooConnections>& connections) { return connections->is_over(); });
  }
  // Never destroyed: the process may end while peers read. A forked child has the memory of its parent's, but not the
  // threads.
  static Parked& get() {
    static std::mutex mutex;
    static Parked* parked = nullptr;
    static pid_t owner = 0;
    const std::lock_guard lock(mutex);
    if (owner != getpid()) {
      parked = new Parked;
      owner = getpid();
    }
    return *parked;
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<GlooConnections>> parked_;
};

// Gloo's thread sends, and a program may end without destroying its groups: what calls that have returned have sent
// goes out before. Never destroyed, and not of a forked child, as Parked.
class LastPackets {
 public:
  static void add(GlooConnections* connections) {
    const std::lock_guard lock(mutex());
    if (owner != getpid()) {
      if (owner == 0) std::atexit(send);
      live = new std::set<GlooConnections*>;
      owner = getpid();
    }
    live->insert(connections);
  }
  static void remove(GlooConnections* connections) {
    const std::lock_guard lock(mutex());
    if (owner == getpid()) live->erase(connections);
  }

 private:
  static void send() {
    const std::lock_guard lock(mutex());
    if (owner != getpid()) return;
    for (GlooConnections* connections : *live) connections->flush(kStay);
  }
  static std::mutex& mutex() {
    static auto* const made = new std::mutex;
    return *made;
  }
  static inline std::set<GlooConnections*>* live = nullptr;
  static inline pid_t owner = 0;
};

class GlooEngine final : public MessageEngine {
 public:
  explicit GlooEngine(std::unique_ptr<GlooConnections> connections) : connections_(std::move(connections)) {
    LastPackets::add(connections_.get());
  }
  ~GlooEngine() override {
    LastPackets::remove(connections_.get());
    Parked::get().sweep();
    if (!connections_->say_bye(kStay)) Parked::get().add(std::move(connections_));
  }

  const char* name() const override { return "gloo"; }
  int rank() const override { return connections_->rank(); }
  int size() const override { return connections_->size(); }
  void send(int to, std::span<const ConstBlock> parts) override { connections_->send(to, parts); }
  void flush(std::chrono::milliseconds limit) override { connections_->flush(limit); }
  bool take(Packet& packet) override { return connections_->take(packet); }
  void recycle(Packet&& packet) override { connections_->recycle(std::move(packet)); }
  void wait(std::chrono::microseconds limit) override { connections_->wait(limit); }
  std::string lost(int rank) const override { return connections_->lost(rank); }

 private:
  std::unique_ptr<GlooConnections> connections_;
};

}  // namespace

std::unique_ptr<MessageEngine> make_gloo_engine(GlooMesh mesh, std::vector<pid_t> pids) {
  Parked::get().sweep();
  return std::make_unique<GlooEngine>(std::make_unique<GlooConnections>(std::move(mesh), std::move(pids)));
}

}  // namespace tutti::comm
