from mcclt.experiments.paper import paper_entry, paper_results


def test_entries_of_table_1():
    assert paper_entry("Hopper-v4", "ppo", "plain") == {"mean": 2973.0, "se": 27.0}
    assert paper_entry("Hopper-v5", "trpo", "mcclt") == {"mean": 2927.0, "se": 27.0, "significant_vs_ensemble": True}
    assert paper_entry("Hopper-v4", "ppo", "mcclt@n_quantiles=4") is None
    assert paper_entry("CartPole-v1", "ppo", "plain") is None


def test_ten_asterisks():
    entries = [algos[algo]["mcclt"] for algos in paper_results()["returns"].values() for algo in ("ppo", "trpo")]
    assert len(entries) == 16 and sum(bool(e.get("significant_vs_ensemble")) for e in entries) == 10
