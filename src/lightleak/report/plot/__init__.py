"""One way to draw every chart: `chart.Plot` describes it as data and `chart.draw` makes it self-contained SVG."""
