"""Show a training while it runs: write its steps to files in the run's folder, and send them to the run's gateway.

    with live_training("sft", "SFT: loss by step", {"training": "loss"}, log, gateway_url) as live:
        live.step({"step": 3, "loss": 1.2}, total=60, note="loss 1.200")
        live.check(loss_alarms(live.rows))
        live.refresh()              # call it twice a second; it writes at most once a second

Files under $QINGLAN_LIVE (`qinglan run` sets it to RUN/live; if it is not set, no files are written):
  index.html          page with every training of the run, which reloads itself
  <stage>/            metrics.jsonl, curve.svg, alarms.jsonl, log.txt (last lines), training.json (data of the page)

The view never ends a training: a full disk or an unreachable gateway is reported once, and the training continues.
"""
