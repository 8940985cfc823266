// FreeListed: memory of small objects that come and go with every call, kept per thread.
#pragma once

#include <cstddef>
#include <new>
#include <utility>

namespace tutti {

// A base that gives T, and only T itself, memory from a list of the thread: what is deleted is used again by the next
// `new` of a T on that thread. Objects may be deleted by other threads than made them. Sanitizers see every object:
// there the lists are empty.
template <class T>
class FreeListed {
 public:
  static void* operator new(size_t size) {
    List& list = here();
    if (size != sizeof(T) || list.first == nullptr) return ::operator new(size);
    Slot* const slot = list.first;
    list.first = slot->next;
    --list.count;
    return slot;
  }
  static void operator delete(void* memory, size_t size) {
    List& list = here();
    if (size != sizeof(T) || list.is_over || list.count >= kMost) return ::operator delete(memory);
    list.first = ::new (memory) Slot{list.first};
    ++list.count;
  }

 private:
  struct Slot {
    Slot* next;
  };
  // Without a destructor, because objects with static storage may be deleted after a thread's other variables have
  // ended.
  struct List {
    Slot* first;
    int count;
    bool is_over;
  };
  struct Guard {
    List& list;
    ~Guard() {
      list.is_over = true;
      while (list.first != nullptr) ::operator delete(std::exchange(list.first, list.first->next));
    }
  };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  static constexpr int kMost = 0;
#else
  static constexpr int kMost = 256;
#endif

  static List& here() {
    static thread_local constinit List list{nullptr, 0, false};
    static thread_local Guard guard{list};
    static_cast<void>(guard);
    return list;
  }
};

}  // namespace tutti
