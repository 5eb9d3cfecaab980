"""Shared code for the evaluations of the rewriter, of the style model and of the teacher.

table = MetricTable.of(rows, values, METRICS, draws, seed)     metric_table.py: levels, paired differences
evaluation = with_verdict({...}, decide)                       evaluation_file.py, rewriter_gate.py, style_gate.py
write_report(evaluation_report(evaluation, ...), path)         report.py: one page, and Markdown of the same data
"""
