"""The whole flow in one screen: kernel -> tile program -> passes -> warp program -> simulate -> metrics.

Start reading here, then follow a function into its room. Clock, tile choice and the result store are searches over
this flow and live one room further, in `heddle.study`.
"""
