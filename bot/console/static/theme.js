// The theme, set before the first paint. A classic script: modules run too late for that.
(() => {
  const chosen = localStorage.getItem("moorings.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
