"""A training while it runs: its steps become files in the run's folder, and are sent to the run's gateway.

    with live_training("sft", "SFT: loss by step", {"training": "loss"}, log, gateway_url) as live:
        live.step({"step": 3, "loss": 1.2}, total=60, note="loss 1.200")
        live.check(loss_alarms(live.rows))
        live.refresh()              # twice a second; it writes once a second at most

files under $QINGLAN_LIVE (`qinglan run` sets it to RUN/live; without it there are none)
  index.html          the page for people: every training of the run, refreshed by itself
  <stage>/            metrics.jsonl, curve.svg, alarms.jsonl, log.txt (its end), training.json (what the page shows)

The view never ends a training: a full disk or an unreachable gateway is reported once, and the training continues.
"""
