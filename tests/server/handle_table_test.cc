#include "server/torch/handle_table.h"

#include <gtest/gtest.h>

#include <random>
#include <unordered_map>

namespace rgpu::server {
namespace {

SlotPtr make_slot(MemoryLedger& ledger) { return c10::make_intrusive<Slot>(0u, ledger); }

TEST(HandleTable, FindsWhatWasInserted) {
  MemoryLedger ledger(0, 0);
  HandleTable table;
  const SlotPtr slot = make_slot(ledger);
  EXPECT_TRUE(table.insert(5, slot));
  EXPECT_FALSE(table.insert(5, slot));
  ASSERT_NE(table.find(5), nullptr);
  EXPECT_EQ(table.find(5)->get(), slot.get());
  EXPECT_EQ(table.find(6), nullptr);
  EXPECT_EQ(table.erase(5).get(), slot.get());
  EXPECT_EQ(table.erase(5).get(), nullptr);
  EXPECT_EQ(table.size(), 0u);
}

TEST(HandleTable, AgreesWithAMapOverManyRandomSteps) {
  MemoryLedger ledger(0, 0);
  HandleTable table;
  std::unordered_map<wire::Handle, Slot*> expected;
  std::mt19937_64 random(1);
  for (int step = 0; step < 200'000; ++step) {
    const wire::Handle handle = 1 + random() % 5000;
    if (random() % 2 == 0) {
      SlotPtr slot = make_slot(ledger);
      Slot* const raw = slot.get();
      const bool inserted = table.insert(handle, std::move(slot));
      EXPECT_EQ(inserted, expected.emplace(handle, raw).second);
    } else {
      const SlotPtr erased = table.erase(handle);
      const auto found = expected.find(handle);
      EXPECT_EQ(erased.get(), found == expected.end() ? nullptr : found->second);
      expected.erase(handle);
    }
  }
  EXPECT_EQ(table.size(), expected.size());
  for (const auto& [handle, raw] : expected) {
    ASSERT_NE(table.find(handle), nullptr);
    EXPECT_EQ(table.find(handle)->get(), raw);
  }
}

}  // namespace
}  // namespace rgpu::server
