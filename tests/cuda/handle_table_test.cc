#include "cuda_shim/client/handle_table.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

namespace rgpu::cuda {
namespace {

struct Thing {
  explicit Thing(int number) : number(number) {}
  int number;
  std::shared_ptr<int> held = std::make_shared<int>(1);
};

TEST(HandleTable, FindsWhatIsAliveAndNothingElse) {
  HandleTable<Thing> things(100);
  Thing* const thing = things.create(5);
  ASSERT_NE(thing, nullptr);
  EXPECT_EQ(things.find(thing), thing);
  EXPECT_EQ(things.find(thing)->number, 5);
  EXPECT_EQ(things.find(nullptr), nullptr);
  EXPECT_EQ(things.find(reinterpret_cast<std::byte*>(thing) + 8), nullptr);
  EXPECT_EQ(things.find(thing + 1), nullptr);
  int other = 0;
  EXPECT_EQ(things.find(&other), nullptr);
  EXPECT_EQ(things.find(reinterpret_cast<void*>(uintptr_t{0xdeadbeef})), nullptr);
  things.destroy(thing);
  EXPECT_EQ(things.find(thing), nullptr);
}

TEST(HandleTable, DestroyingRunsTheDestructor) {
  HandleTable<Thing> things(100);
  Thing* const thing = things.create(1);
  const std::weak_ptr<int> held = thing->held;
  things.destroy(thing);
  EXPECT_TRUE(held.expired());
}

TEST(HandleTable, APlaceIsUsedAgainAsLateAsPossible) {
  HandleTable<Thing> things(10000);
  Thing* const first = things.create(0);
  things.destroy(first);
  for (int i = 0; i < 1000; ++i) {
    Thing* const next = things.create(i);
    EXPECT_NE(next, first);
    things.destroy(next);
  }
}

TEST(HandleTable, FullIsNullptrUntilSomethingIsDestroyed) {
  HandleTable<Thing> things(3);
  Thing* const first = things.create(1);
  EXPECT_NE(things.create(2), nullptr);
  EXPECT_NE(things.create(3), nullptr);
  EXPECT_EQ(things.create(4), nullptr);
  things.destroy(first);
  EXPECT_EQ(things.create(5), first);
  std::set<int> numbers;
  std::vector<Thing*> alive;
  things.for_each([&](Thing& thing) {
    numbers.insert(thing.number);
    alive.push_back(&thing);
  });
  EXPECT_EQ(numbers, (std::set<int>{2, 3, 5}));
  for (Thing* const thing : alive) things.destroy(thing);
}

}  // namespace
}  // namespace rgpu::cuda
