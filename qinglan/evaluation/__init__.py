"""The kernel of every evaluation: rewriter, style model and teacher comparison give metrics and sections.

table = MetricTable.of(rows, values, METRICS, draws, seed)     metric_table.py: levels, paired differences
evaluation = with_verdict({...}, decide)                       evaluation_file.py, rewriter_gate.py, style_gate.py
write_report(evaluation_report(evaluation, ...), path)         report.py: one page, and Markdown of the same data
"""
